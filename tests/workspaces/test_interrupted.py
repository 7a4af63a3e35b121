"""Workspaces of a process that was killed: its successor finds, keeps or removes everything."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.config import WorkspaceSettings
from atomic.git import Repository
from atomic.processes import new_mark
from atomic.workspaces import RunWorkspaces, Work, WorkspaceError, choose_isolation, remove_tree
from atomic.workspaces.run_branch import FACT
from atomic.workspaces.workspace import MARK
from tests.support.repositories import git, new_repository, write
from tests.workspaces.kinds import KINDS, OVERLAYS, each
from tests.workspaces.places import ADA, REF, Place, shell

RUN = "3f2a9c1e-0000-4000-8000-000000000000"
FILES = {".gitignore": ".env\n", "a.txt": "one\n", "src/b.txt": "two\n"}


@pytest.fixture(params=each([*OVERLAYS[:1], KINDS[-1]]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, new_repository(tmp_path / "project", FILES), request.param)


class Runs:
    """A run in a project, of which one process after the other is killed."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = new_repository(folder / "project", FILES)
        self.facts: dict[str, Any] = {}

    def next(self) -> RunWorkspaces:
        """Return the workspaces of the run as the next process sees them."""
        return RunWorkspaces(RUN, self.home, self.facts, self._keep, self.project, WorkspaceSettings())

    def _keep(self, name: str, value: Any) -> None:
        self.facts[name] = msgspec.to_builtins(value)

    @property
    def folder(self) -> Path:
        return self.home / "workspaces" / RUN

    def git(self, *words: str) -> str:
        return git(self.project, *words)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


async def test_a_capture_works_after_one_that_was_killed(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo new > new.txt")
    write(workspace.folder, {"exchange/git/index.lock": "", "exchange/out.bundle.lock": "", "exchange/in-lfs/x": ""})
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{captured.result}:new.txt") == "new\n"


async def test_locks_of_a_killed_git_do_not_hide_what_was_staged(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo staged > s.txt; git add s.txt; echo other > s.txt; touch .git/index.lock")
    await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{REF}^2:s.txt") == "staged\n"
    await shell(workspace, "git add s.txt && git commit -qm s")


@pytest.mark.parametrize("number", [1, os.getpid()], ids=["other", "same"])
async def test_programs_that_outlive_their_killed_owner_are_ended_before_the_next_begin(
    place: Place, number: int
) -> None:
    """In a container, a restarted process may have the number of the former one."""
    workspace = await place.workspace()
    mark = new_mark(MARK)
    with subprocess.Popen(["sleep", "3600"], env={**os.environ, **mark}) as left:
        (workspace.folder / "owner").write_text(f"{number} {mark[MARK]}")
        try:
            async with workspace.open():
                assert left.wait(timeout=60) == -9
        finally:
            left.kill()


async def test_work_is_kept_although_the_base_was_deleted(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo new > new.txt; rm -r src; echo changed > a.txt")
    remove_tree(place.run / "base")
    again = await place.workspace()
    assert await shell(again, "cat a.txt new.txt; ls") == "changed\nnew\na.txt\nnew.txt\n"
    captured = await again.capture(place.repository, REF, ADA, "Task 1")
    listed = place.git("diff", "--name-status", "main", captured.result)
    assert listed.split() == ["M", "a.txt", "A", "new.txt", "D", "src/b.txt"]


async def test_the_self_test_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", FILES)
    with subprocess.Popen(["true"]) as dead:
        pass
    space = f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    left = tmp_path / "layers" / f"atomic-test-{dead.pid}-{space}-abc"
    left.mkdir(parents=True, mode=0o700)
    await choose_isolation("auto", tmp_path / "layers", project)
    assert [*(tmp_path / "layers").iterdir()] == []


@pytest.mark.parametrize("include_uncommitted", [False, True])
async def test_the_branch_is_made_although_the_process_was_killed_before(runs: Runs, include_uncommitted: bool) -> None:
    write(runs.project, {"draft.txt": "draft\n"})
    await runs.next().begin("clone", include_uncommitted=include_uncommitted)
    runs.git("update-ref", "-d", "refs/heads/atomic/3f2a9c1e")
    await runs.next().begin("clone", include_uncommitted=include_uncommitted)
    assert await runs.next().tip() == runs.facts[FACT]["first"]


async def test_a_folder_that_cannot_be_written_is_said(runs: Runs) -> None:
    write(runs.home, {"workspaces": "a file\n"})
    with pytest.raises(WorkspaceError, match=r"Workspaces cannot be made in .*/workspaces: .*File exists"):
        await runs.next().begin("clone")


async def test_a_start_that_was_killed_before_the_branch_moved_is_repeated(runs: Runs) -> None:
    await runs.next().begin("clone")
    former = runs.facts[FACT]["first"]
    write(runs.project, {"a.txt": "two\n"})
    runs.git("commit", "-qam", "second")
    await runs.next().begin("clone")
    runs.git("update-ref", "refs/heads/atomic/3f2a9c1e", former)  # as it was when the record was written
    await runs.next().begin("clone")
    assert runs.git("rev-parse", "atomic/3f2a9c1e", "main").split() == [runs.facts[FACT]["first"]] * 2


async def test_a_task_that_lands_while_another_looks_at_the_tip_stays_landed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    start = await spaces.tip()
    new = runs.git("commit-tree", f"{start}^{{tree}}", "-p", start, "-m", "Task 1").strip()
    work = Work("1", "Task 1", 1, start, new)
    is_ancestor = Repository.is_ancestor
    lands = asyncio.Event()

    async def slow(self: Repository, old: str, other: str) -> bool:
        found = await is_ancestor(self, old, other)
        if not lands.is_set():
            lands.set()
            await spaces.merge(work)
        return found

    runs.git("update-ref", "refs/heads/atomic/3f2a9c1e", new)
    monkeypatch.setattr(Repository, "is_ancestor", slow)
    assert await spaces.tip() == new
    assert [one["task"] for one in runs.facts[FACT]["landed"]] == ["1"]


async def test_workspaces_of_checks_that_were_killed_do_not_stay(runs: Runs) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    tip = await spaces.tip()
    killed = spaces.fresh("check", tip)
    await killed.__aenter__()
    assert [*(runs.folder / "temporary").iterdir()]
    resumed = runs.next()
    await resumed.base()
    assert [*(runs.folder / "temporary").iterdir()] == []
    await resumed.close()
    assert not runs.folder.exists()


@pytest.mark.ci
async def test_two_checks_of_the_same_commit_have_their_own_workspaces(runs: Runs) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    tip = await spaces.tip()
    async with spaces.fresh("check", tip) as one:
        async with spaces.fresh("check", tip) as other:
            assert one.root != other.root
        assert (one.root / "a.txt").exists()


@pytest.mark.ci
async def test_work_that_is_parked_twice_under_the_same_name_is_kept_twice(runs: Runs) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    workspace = await spaces.create("review", await spaces.tip())
    await shell(workspace, "echo one > found.txt")
    await spaces.park("review", 1, "Changes")
    await spaces.park("review", 1, "Changes")
    assert len(_parked(runs)) == 1
    await shell(workspace, "echo two > found.txt")
    await spaces.park("review", 1, "Changes")
    assert {runs.git("show", f"{ref}:found.txt") for ref in _parked(runs)} == {"one\n", "two\n"}


async def test_the_files_of_a_turn_that_was_killed_are_kept_before_the_next_one(runs: Runs) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    killed = spaces.use("1", message="Task 1", attempt=1, keep=True)
    place = await killed.__aenter__()
    await place.run("sh", "-c", "echo half > half.txt")
    async with runs.next().use("1", message="Task 1", attempt=1, keep=True) as place:
        await place.run("sh", "-c", "rm half.txt; echo whole > whole.txt")
    assert runs.git("show", f"refs/atomic/{RUN}/1/1-cut-1:half.txt") == "half\n"
    assert runs.git("show", f"refs/atomic/{RUN}/1/1:whole.txt") == "whole\n"
    async with runs.next().use("1", message="Task 1", attempt=2, keep=True) as place:
        await place.run("sh", "-c", "echo more > more.txt")
    assert len(_parked(runs)) == 3


def _parked(runs: Runs) -> list[str]:
    return runs.git("for-each-ref", "--format=%(refname)", "refs/atomic/").split()
