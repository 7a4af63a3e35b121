"""Tasks that are merged one after the other: nothing is lost, or it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.git import Repository, find_repository
from atomic.workspaces import (
    Conflict,
    Contents,
    Isolation,
    IsolationKind,
    Merged,
    Workspace,
    move_branch,
    prepare_base,
    rebase,
)
from atomic.workspaces.merging import WHOLE, find_dropped
from tests.support.repositories import commit, git, new_repository, write

LINES = "".join(f"line {number}\n" for number in range(1, 21))


class Project:
    """A project with a run's branch, and commits of tasks that began at its start."""

    def __init__(self, root: Path) -> None:
        self.folder = new_repository(root / "project", {"a.txt": LINES, "b.txt": "b\n"})
        self.start = git(self.folder, "rev-parse", "HEAD").strip()
        self.run = root / "home" / "run"
        found = find_repository(self.folder)
        assert found is not None
        self.repository: Repository = found

    def task(self, files: dict[str, str], *deleted: str, at: str = "") -> str:
        """Return a commit with these files on top of the start."""
        git(self.folder, "checkout", "-q", "--detach", at or self.start)
        write(self.folder, files)
        for name in deleted:
            (self.folder / name).unlink()
        made = commit(self.folder, "task")
        git(self.folder, "checkout", "-q", "main")
        return made

    async def merge(self, tip: str, result: str) -> Merged | Conflict:
        base = await prepare_base(self.repository, self.run / "base", self.start, "atomic/x", Contents())
        workspace = Workspace(base, self.run / result[:8], Isolation(IsolationKind.CLONE))
        ref = "refs/atomic/run/merge"
        return await rebase(self.repository, workspace, start=self.start, result=result, tip=tip, ref=ref)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_two_tasks_in_different_files_are_both_there(project: Project) -> None:
    one = project.task({"one.txt": "one\n"})
    two = project.task({"two.txt": "two\n"})
    merged = await project.merge(one, two)
    assert isinstance(merged, Merged)
    assert merged.dropped == {}
    assert git(project.folder, "ls-tree", "--name-only", merged.commit).split() == [
        "a.txt",
        "b.txt",
        "one.txt",
        "two.txt",
    ]
    assert git(project.folder, "merge-base", "--is-ancestor", one, merged.commit) == ""


async def test_a_task_on_the_tip_keeps_its_commit(project: Project) -> None:
    one = project.task({"one.txt": "one\n"})
    assert await project.merge(project.start, one) == Merged(one)


async def test_changes_in_different_parts_of_a_file_are_joined(project: Project) -> None:
    one = project.task({"a.txt": LINES.replace("line 2\n", "line two\n")})
    two = project.task({"a.txt": LINES.replace("line 19\n", "line nineteen\n")})
    merged = await project.merge(one, two)
    assert isinstance(merged, Merged)
    text = git(project.folder, "show", f"{merged.commit}:a.txt")
    assert "line two\n" in text
    assert "line nineteen\n" in text


async def test_a_conflict_shows_both_sides(project: Project) -> None:
    one = project.task({"a.txt": LINES.replace("line 2\n", "mine\n")})
    two = project.task({"a.txt": LINES.replace("line 2\n", "yours\n")})
    conflict = await project.merge(one, two)
    assert isinstance(conflict, Conflict)
    assert conflict.paths == ("a.txt",)
    assert "mine" in conflict.text
    assert "yours" in conflict.text


async def test_a_file_deleted_on_one_side_and_changed_on_the_other_is_a_conflict(project: Project) -> None:
    one = project.task({"b.txt": "changed\n"})
    two = project.task({}, "b.txt")
    conflict = await project.merge(one, two)
    assert isinstance(conflict, Conflict)
    assert conflict.paths == ("b.txt",)


async def test_lines_that_a_merge_takes_away_again_are_named(project: Project) -> None:
    one = project.task({"a.txt": f"{LINES}added by one\n"})
    stale = project.task({"a.txt": LINES, "two.txt": "two\n"}, at=one)
    found = await find_dropped(project.repository, start=project.start, tip=one, merged=stale)
    assert found == {"a.txt": ["added by one"]}


async def test_lines_that_only_moved_are_not_dropped(project: Project) -> None:
    one = project.task({"a.txt": f"{LINES}added by one\n"})
    moved = project.task({"a.txt": f"added by one\n{LINES}"}, at=one)
    assert await find_dropped(project.repository, start=project.start, tip=one, merged=moved) == {}


async def test_lines_that_moved_to_another_file_are_not_dropped(project: Project) -> None:
    one = project.task({"a.txt": f"{LINES}added by one\n"})
    moved = project.task({"a.txt": LINES, "c.txt": "added by one\n"}, at=one)
    assert await find_dropped(project.repository, start=project.start, tip=one, merged=moved) == {}


async def test_a_change_without_lines_that_a_merge_takes_back_is_named(project: Project) -> None:
    one = project.task({"a.txt": LINES.replace("line 2\n", "")})
    stale = project.task({"a.txt": LINES, "two.txt": "two\n"}, at=one)
    found = await find_dropped(project.repository, start=project.start, tip=one, merged=stale)
    assert found == {"a.txt": [WHOLE]}


async def test_what_a_worker_solves_in_the_commit_of_a_merge_is_kept(project: Project) -> None:
    """The branch has moved again since the worker merged it."""
    one = project.task({"a.txt": LINES.replace("line 2\n", "mine\n")})
    more = project.task({"c.txt": "c\n"}, at=one)
    git(project.folder, "checkout", "-q", "--detach", project.start)
    write(project.folder, {"a.txt": LINES.replace("line 2\n", "yours\n")})
    commit(project.folder, "Change line 2")
    git(project.folder, "merge", "-q", one, check=False)
    write(project.folder, {"a.txt": LINES.replace("line 2\n", "mine\nyours\n"), "d.txt": "only in the merge\n"})
    merge = commit(project.folder, "Merge")
    git(project.folder, "checkout", "-q", "main")
    merged = await project.merge(more, merge)
    assert isinstance(merged, Merged)
    assert merged.dropped == {}
    assert "mine\nyours\n" in git(project.folder, "show", f"{merged.commit}:a.txt")
    assert git(project.folder, "show", f"{merged.commit}:d.txt") == "only in the merge\n"
    assert git(project.folder, "show", "-s", "--format=%s", merged.commit).strip() == "Change line 2"


async def test_a_worker_that_has_rebased_brings_only_its_own_commits(project: Project) -> None:
    """Commits of others below it have been changed since, so they could not be repeated."""
    one = project.task({"a.txt": LINES.replace("line 2\n", "first\n")})
    more = project.task({"a.txt": LINES.replace("line 2\n", "second\n")}, at=one)
    rebased = project.task({"two.txt": "two\n"}, at=one)
    merged = await project.merge(more, rebased)
    assert isinstance(merged, Merged)
    assert git(project.folder, "rev-list", "--count", f"{more}..{merged.commit}").strip() == "1"
    assert "second\n" in git(project.folder, "show", f"{merged.commit}:a.txt")


async def test_a_detour_that_the_worker_took_back_is_no_conflict(project: Project) -> None:
    one = project.task({"a.txt": LINES.replace("line 2\n", "mine\n")})
    detour = project.task({"a.txt": LINES.replace("line 2\n", "a detour\n")})
    back = project.task({"a.txt": LINES, "two.txt": "two\n"}, at=detour)
    merged = await project.merge(one, back)
    assert isinstance(merged, Merged)
    assert "mine\n" in git(project.folder, "show", f"{merged.commit}:a.txt")
    assert git(project.folder, "show", f"{merged.commit}:two.txt") == "two\n"


async def test_a_conflict_about_a_deleted_file_shows_what_was_changed_in_it(project: Project) -> None:
    one = project.task({}, "b.txt")
    two = project.task({"b.txt": "b\nand more\n"})
    conflict = await project.merge(one, two)
    assert isinstance(conflict, Conflict)
    assert "b.txt: deleted or moved by other tasks, changed by this one" in conflict.text
    assert "+and more" in conflict.text


async def test_the_branch_moves_only_from_where_it_was(project: Project) -> None:
    one = project.task({"one.txt": "one\n"})
    two = project.task({"two.txt": "two\n"})
    git(project.folder, "branch", "atomic/x", project.start)
    assert await move_branch(project.repository, "atomic/x", one, project.start)
    assert await move_branch(project.repository, "atomic/x", one, project.start)  # after a kill
    assert not await move_branch(project.repository, "atomic/x", two, project.start)
    assert git(project.folder, "rev-parse", "atomic/x").strip() == one
