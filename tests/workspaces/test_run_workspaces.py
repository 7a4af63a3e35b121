"""The workspaces and the branch of a run: a kill at any moment loses nothing and merges nothing twice."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.cli.parked import list_parked
from atomic.config import WorkspaceSettings
from atomic.git import GitError, Repository
from atomic.git.calls import run_git
from atomic.workspaces import (
    BranchMovedError,
    Conflict,
    Landed,
    RunBranch,
    RunWorkspaces,
    Work,
    WorkspaceError,
    branch_record,
)
from atomic.workspaces.branch_merges import commit_tree, tree_of
from tests.support.repositories import git, new_repository

RUN = "3f2a9c1e-run"
BRANCH = "atomic/3f2a9c1e"


class KilledError(BaseException):
    """The process ended here."""


class Run:
    """A project and the facts of a run, which survive a kill."""

    def __init__(self, folder: Path, name: str = "project") -> None:
        self.project = new_repository(folder / name, {"a.txt": "a\n"})
        self._home = folder / "home"
        self.folder = self._home / "workspaces" / RUN
        self._facts: dict[str, Any] = {}
        self.writes = 0
        self._kill: tuple[int, bool] | None = None

    def kill_at(self, write: int, *, kept: bool) -> None:
        """End the process at a write of a fact: before it is on the disk, or after."""
        self.writes = 0
        self._kill = (write, kept)

    def started(self) -> RunWorkspaces:
        """Return the workspaces of a new process."""
        facts: Mapping[str, Any] = self._facts
        return RunWorkspaces(RUN, self._home, facts, self._set, self.project, WorkspaceSettings())

    def _set(self, name: str, value: Any) -> None:
        self.writes += 1
        killed = self._kill is not None and self._kill[0] == self.writes
        if killed and self._kill == (self.writes, False):
            raise KilledError
        self._facts[name] = msgspec.to_builtins(value)
        if killed:
            raise KilledError

    def git(self, *words: str) -> str:
        return git(self.project, *words).strip()

    @property
    def subjects(self) -> list[str]:
        return self.git("log", "--format=%s", f"main..{BRANCH}").splitlines()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


async def do(spaces: RunWorkspaces, name: str, command: str) -> Work:
    async with spaces.use(name, message=f"Do {name}") as place:
        assert (await place.run("sh", "-c", command)).exit_code == 0
    return place.work


async def leave(spaces: RunWorkspaces, name: str, file: str, error: BaseException, command: str = "true") -> None:
    """Write a file in a workspace, and leave it with an error."""
    async with spaces.use(name, message=f"Do {name}") as place:
        await place.run("touch", file)
        await place.run("sh", "-c", command)
        raise error


async def merge_all(spaces: RunWorkspaces, works: Sequence[Work]) -> None:
    for work in works:
        assert isinstance(await spaces.merge(work), Landed)


async def test_what_is_done_in_a_workspace_is_parked_and_its_folder_removed(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    work = await do(spaces, "one", "echo one > one.txt")
    assert run.git("show", f"refs/atomic/{RUN}/one/1:one.txt") == "one"
    assert (work.title, work.attempt, work.start) == ("Do one", 1, run.git("rev-parse", "main"))
    assert run.git("status", "--porcelain") == ""
    again = await do(spaces, "one", "test ! -f one.txt && echo again > again.txt")
    assert (again.ref, again.start) == (f"refs/atomic/{RUN}/one/2", work.start)
    await spaces.close()
    assert run.git("branch", "--list", "--format=%(refname:short)").split() == [BRANCH, "main"]


@pytest.mark.ci
async def test_salvage_knows_what_else_is_parked_and_any_subject(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    await do(spaces, "break", "git commit -q --allow-empty -m \"$(printf 'Page\\014break')\"")
    async with spaces.use("stash", message="Do stash\n\nAtomic-Task: stash") as place:
        await place.run("sh", "-c", "echo b > a.txt; git stash -q; echo new > new.txt")
    known = {one.task: one for one in await list_parked(spaces.repository, RUN)}
    assert known["break"].subject == "Page\x0cbreak"
    assert (known["stash"].subject, known["stash"].result) == ("Do stash", place.work.commit)
    assert [run.git("show", f"{one}:a.txt") for one in known["stash"].others] == ["b"]


async def test_a_body_that_fails_is_parked_and_one_that_is_stopped_continues(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(ValueError, match="no"):
        await leave(spaces, "one", "failed.txt", ValueError("no"))
    assert run.git("ls-tree", "--name-only", f"refs/atomic/{RUN}/one/1").split() == ["a.txt", "failed.txt"]
    with pytest.raises(KilledError):
        await leave(spaces, "two", "half.txt", KilledError())
    await spaces.close()
    work = await do(run.started(), "two", "test -f half.txt && touch whole.txt")
    assert run.git("ls-tree", "--name-only", work.commit).split() == ["a.txt", "half.txt", "whole.txt"]


async def test_a_workspace_that_is_made_anew_is_parked_if_a_killed_turn_has_left_work(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(KilledError):
        await leave(spaces, "one", "half.txt", KilledError())
    spaces = run.started()
    await spaces.create("one", await spaces.tip())
    assert run.git("ls-tree", "--name-only", f"refs/atomic/{RUN}/one/1-cut-1").split() == ["a.txt", "half.txt"]


async def test_a_completed_run_parks_what_is_left(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(KilledError):
        await leave(spaces, "one", "half.txt", KilledError())
    await spaces.close(completed=True)
    assert run.git("ls-tree", "--name-only", f"refs/atomic/{RUN}/one/1").split() == ["a.txt", "half.txt"]
    assert not (await run.started().workspace("one")).folder.exists()


async def test_a_workspace_in_use_is_not_opened_twice(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    async with spaces.use("one", message="Do one"):
        with pytest.raises(WorkspaceError, match='"one" is in use'):
            await do(spaces, "one", "true")


async def test_a_worker_that_rewrites_history_takes_nothing_off_the_branch(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    one = await do(spaces, "one", "echo one > one.txt")
    assert isinstance(await spaces.merge(one), Landed)
    two = await do(spaces, "two", "git reset -q --hard main && echo two > two.txt && git add -A && git commit -qm Two")
    assert two.start == run.git("rev-parse", BRANCH)
    assert isinstance(await spaces.merge(two), Landed)
    assert run.git("ls-tree", "--name-only", BRANCH).split() == ["a.txt", "one.txt", "two.txt"]


async def test_a_problem_of_the_check_leaves_the_branch(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    one = await do(spaces, "one", "echo one > one.txt")
    seen: list[str] = []

    async def check(commit: str) -> str | None:
        seen.append(commit)
        return "red"

    assert await spaces.merge(one, check=check) == "red"
    assert (seen, run.subjects) == ([one.commit], [])


@pytest.mark.ci
async def test_a_work_that_continues_another_takes_its_place(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    one = await do(spaces, "one", "echo one > a.txt")
    two = await do(spaces, "two", "echo two > a.txt")
    assert isinstance(await spaces.merge(one), Landed)
    assert isinstance(await spaces.merge(two), Conflict)
    solve = "git rebase -q atomic-tip; echo both > a.txt; git add a.txt; GIT_EDITOR=: git rebase --continue"
    former = (two.commit,)
    async with spaces.use("two", message="Fix", start=two.start, at=two.commit, former=former) as place:
        assert (await place.run("sh", "-c", solve)).exit_code == 0
    merged = await spaces.merge(place.work)
    assert isinstance(merged, Landed)
    assert merged.dropped == {"a.txt": ["one"]}
    assert await spaces.merge(two) == merged
    assert run.git("show", f"{BRANCH}:a.txt") == "both"


@pytest.mark.ci
@pytest.mark.parametrize("kept", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 5))
async def test_a_kill_at_any_write_merges_each_work_once(run: Run, write: int, kept: bool) -> None:
    """The writes are the move that is about to be made and the move that was made, for each work."""
    first = run.started()
    await first.begin("clone")
    names = ["one", "two", "three"]
    one, two, three = [await do(first, name, f"echo {name} > {name}.txt") for name in names]
    run.kill_at(write, kept=kept)
    with pytest.raises(KilledError):
        await merge_all(first, [one, two])
    run.kill_at(0, kept=True)
    second = run.started()
    await merge_all(second, [three, one, two])
    assert sorted(run.subjects) == ["Do one", "Do three", "Do two"]
    branch = second.required_branch
    assert sorted(landed.task for landed in branch.landed) == ["one", "three", "two"]
    assert (branch.landing, branch.tip) == (None, run.git("rev-parse", BRANCH))


async def test_a_kill_before_the_move_does_not_repeat_the_check(run: Run) -> None:
    first = run.started()
    await first.begin("clone")
    work = await do(first, "one", "echo one > one.txt")
    run.kill_at(1, kept=True)
    with pytest.raises(KilledError):
        await first.merge(work)
    assert run.subjects == []
    run.kill_at(0, kept=True)

    async def check(commit: str) -> str:
        return f"{commit} was checked again"

    assert isinstance(await run.started().merge(work, check=check), Landed)
    assert run.subjects == ["Do one"]


async def test_a_move_that_another_task_sees_first_belongs_to_its_task(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    one = await do(spaces, "1", "touch one.txt")
    two = await do(spaces, "2", "touch two.txt")
    commit_of = branch_record._commit_of  # pyright: ignore[reportPrivateUsage]
    is_merged = False

    async def late(repository: Repository, branch: RunBranch) -> str:
        nonlocal is_merged
        if not is_merged:
            is_merged = True
            run.kill_at(2, kept=False)  # the branch has moved, and that is not noted yet
            with pytest.raises(KilledError):
                await run.started().merge(one)
            run.kill_at(0, kept=False)
        return await commit_of(repository, branch)

    monkeypatch.setattr(branch_record, "_commit_of", late)
    await spaces.tip()
    again = run.started()
    await merge_all(again, [two, one])
    landed = {one.task: one for one in again.required_branch.landed}
    assert run.subjects == ["Do 2", "Do 1"]
    assert run.git("diff", "--name-only", landed["1"].base, landed["1"].commit) == "one.txt"


async def test_a_kill_after_the_move_is_noted_before_others_build_on_it(run: Run) -> None:
    first = run.started()
    await first.begin("clone")
    one, two = [await do(first, name, f"echo {name} > {name}.txt") for name in ("one", "two")]
    await merge_all(first, [one])
    run.kill_at(2, kept=False)
    with pytest.raises(KilledError):
        await first.merge(two)
    run.kill_at(0, kept=True)
    second = run.started()
    three = await do(second, "three", "echo three > two.txt")
    await merge_all(second, [three, two])
    assert run.subjects == ["Do three", "Do two", "Do one"]
    assert run.git("show", f"{BRANCH}:two.txt") == "three"


@pytest.mark.parametrize(
    "damage", ["rm -rf .git", pytest.param("rm -rf .git/refs .git/packed-refs .git/HEAD", marks=pytest.mark.ci)]
)
@pytest.mark.parametrize("kind", ["clone", pytest.param("auto", marks=pytest.mark.ci)])
async def test_a_workspace_that_is_damaged_at_a_kill_is_made_again_from_what_is_kept(
    run: Run, kind: str, damage: str
) -> None:
    spaces = run.started()
    await spaces.begin(kind)
    await merge_all(spaces, [await do(spaces, "first", "echo first > first.txt")])
    with pytest.raises(KilledError):
        await leave(spaces, "one", "half.txt", KilledError(), damage)
    work = await do(
        run.started(),
        "one",
        "git log --format=%s main.. && echo whole > whole.txt && git add -A && "
        "git -c user.name=W -c user.email=w@w commit -qm Whole",
    )
    assert isinstance(await run.started().merge(work), Landed)
    assert run.subjects == ["Whole", "Do one", "Do first"]
    assert run.git("ls-tree", "--name-only", BRANCH).split() == ["a.txt", "first.txt", "half.txt", "whole.txt"]


@pytest.mark.parametrize("kind", ["clone", pytest.param("auto", marks=pytest.mark.ci)])
async def test_a_kill_while_the_folder_of_a_run_is_removed_leaves_nothing_that_looks_complete(
    run: Run, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = run.started()
    await spaces.begin(kind)
    await merge_all(spaces, [await do(spaces, "one", "echo one > one.txt")])

    def remove_half(folder: Path) -> None:
        if folder.name != RUN:
            return
        for objects in folder.glob("*/.git/objects"):
            shutil.rmtree(objects)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("atomic.workspaces.run_folders.remove_tree", remove_half)
        with pytest.raises(KilledError):
            await spaces.close()
    again = run.started()
    await merge_all(again, [await do(again, "two", "test -f one.txt && echo two > two.txt")])
    assert run.subjects == ["Do two", "Do one"]


async def test_a_workspace_of_which_a_kill_has_left_a_part_is_made_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(KilledError):
        await leave(spaces, "one", "left.txt", KilledError())

    def remove_part(folder: Path) -> None:
        if folder.name == RUN:
            (folder / "task-one" / "copy" / "project" / "a.txt").unlink()
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr("atomic.workspaces.run_folders.remove_tree", remove_part)
        with pytest.raises(KilledError):
            await run.started().begin("clone")
    work = await do(run.started(), "one", "test -f a.txt && touch new.txt")
    assert run.git("diff", "--name-status", "main", work.commit) == "A\tnew.txt"


async def test_a_second_begin_parks_what_a_killed_use_has_left(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(KilledError):
        await leave(spaces, "one", "precious.txt", KilledError())
    await run.started().begin("clone")
    assert run.git("ls-tree", "--name-only", f"refs/atomic/{RUN}/one/1-cut-1").split() == ["a.txt", "precious.txt"]
    work = await do(run.started(), "one", "test ! -e precious.txt && echo one > one.txt")
    assert work.start == run.git("rev-parse", "main")


async def test_the_error_of_a_call_of_git_names_its_command(tmp_path: Path) -> None:
    folder = new_repository(tmp_path / "project")
    with pytest.raises(GitError, match=r"^git checkout failed: "):
        await run_git("-c", "core.hooksPath=/dev/null", "checkout", "nothing", cwd=folder, env={})


NAMES = ["exchange", "ready", "owner", "unparked", "copy", "upper", "work", "base"]


@pytest.mark.parametrize("name", ["git-0", *(pytest.param(name, marks=pytest.mark.ci) for name in NAMES)])
async def test_a_project_may_be_called_like_a_file_of_a_workspace(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path, name)
    spaces = run.started()
    await spaces.begin("clone")
    async with spaces.checkout() as view:
        assert (await view.run("cat", "a.txt")).stdout == "a\n"
    work = await do(spaces, "one", "test -f a.txt && echo one > one.txt")
    assert isinstance(await spaces.merge(work), Landed)
    assert run.subjects == ["Do one"]


@pytest.mark.ci
async def test_a_workspace_of_an_older_version_is_continued(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    with pytest.raises(KilledError):
        await leave(spaces, "one", "half.txt", KilledError())
    folder = run.folder / "task-one"
    (folder / "copy" / "project").rename(folder / "project")
    (folder / "copy").rmdir()
    work = await do(run.started(), "one", "test -f half.txt && echo whole > whole.txt")
    assert isinstance(await run.started().merge(work), Landed)
    assert run.git("ls-tree", "--name-only", BRANCH).split() == ["a.txt", "half.txt", "whole.txt"]


async def test_all_commits_have_the_user_that_git_would_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.git("config", "user.name", "Settings")
    run.git("config", "user.email", "settings@example.org")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Variable")
    for variable in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(variable)
    spaces = run.started()
    await spaces.begin("clone")
    work = await do(spaces, "one", "echo one > one.txt")
    tree = await tree_of(spaces.repository, work.commit)
    other = await commit_tree(spaces.repository, tree, [work.commit], "Undo")
    who = "Variable <settings@example.org> by Settings <settings@example.org>"
    for commit in (work.commit, other):
        assert run.git("log", "-1", "--format=%an <%ae> by %cn <%ce>", commit) == who


@pytest.mark.parametrize("isolate", ["clone", "auto"])
async def test_a_branch_called_atomic_is_named_with_the_way_to_rename_it(run: Run, isolate: str) -> None:
    run.git("branch", "atomic")
    with pytest.raises(BranchMovedError, match=r"git branch -m atomic NAME.*--isolate none"):
        await run.started().begin(isolate)
    run.git("branch", "-m", "atomic", "other")
    await run.started().begin(isolate)
    assert run.git("rev-parse", BRANCH) == run.git("rev-parse", "main")


@pytest.mark.ci
async def test_a_task_that_lands_twice_keeps_both_parts(run: Run) -> None:
    spaces = run.started()
    await spaces.begin("clone")
    for name, file in (("one", "one1"), ("two", "two"), ("one", "one2"), ("three", "three"), ("one", "one3")):
        await merge_all(spaces, [await do(spaces, name, f"echo {file} > {file}")])
    landed = spaces.required_branch.landed
    assert [one.task for one in landed] == ["two", "three", "one"]
    ranges = [run.git("diff", "--name-only", *part) for part in landed[-1].parts]
    assert ranges == ["one1", "one2", "one3"]
    assert len(landed[-1].sources) == 3
