"""The workspaces and the branch of a run: a kill at any moment loses nothing and merges nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.config import WorkspaceSettings
from atomic.workspaces import Conflict, Landed, RunWorkspaces, Work, WorkspaceError
from tests.support.repositories import git, new_repository

RUN = "3f2a9c1e-run"
BRANCH = "atomic/3f2a9c1e"


class KilledError(BaseException):
    """The process ended here."""


class Run:
    """A project and the facts of a run, which survive a kill."""

    def __init__(self, folder: Path) -> None:
        self.project = new_repository(folder / "project", {"a.txt": "a\n"})
        self._home = folder / "home"
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


async def leave(spaces: RunWorkspaces, name: str, file: str, error: BaseException) -> None:
    """Write a file in a workspace, and leave it with an error."""
    async with spaces.use(name, message=f"Do {name}") as place:
        await place.run("touch", file)
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
