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
from atomic.workspaces.merging import find_dropped
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
        await workspace.create(self.repository, tip)
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


async def test_the_branch_moves_only_from_where_it_was(project: Project) -> None:
    one = project.task({"one.txt": "one\n"})
    two = project.task({"two.txt": "two\n"})
    git(project.folder, "branch", "atomic/x", project.start)
    assert await move_branch(project.repository, "atomic/x", one, project.start)
    assert await move_branch(project.repository, "atomic/x", one, project.start)  # after a kill
    assert not await move_branch(project.repository, "atomic/x", two, project.start)
    assert git(project.folder, "rev-parse", "atomic/x").strip() == one
