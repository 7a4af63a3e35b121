"""Work that a stopped process has left in a workspace: `stop --cancel` and `salvage` park it."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.base.errors import ExitCode
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.ralph.test_isolated import task, tasks_file
from tests.support.user_workflows import started
from tests.support.waits import eventually

KINDS = ["overlay", "clone"]


class Left(Sandbox):
    """A run with one task, whose worker waits after it has written a file."""

    def __init__(self, folder: Path, kind: str) -> None:
        super().__init__(folder, isolate=kind)
        began = self.user.home / "began"
        self.play(worker("1", {"sh": f"echo half > half.txt; touch {began}; sleep 600"}), APPROVE)
        self.words = ("run", "ralph", "--json", "--tasks", tasks_file(self, task("1")), "--verify", "true")

    async def begins(self) -> None:
        await eventually((self.user.home / "began").exists)

    @property
    def short(self) -> str:
        return self.session.name[:8]

    def parked(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)", "refs/atomic").splitlines()


@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.ci)])
async def test_work_of_a_cancelled_run_is_parked_and_prune_deletes_it(tmp_path: Path, kind: str) -> None:
    run = Left(tmp_path, kind)
    async with started(run.user, *run.words) as running:
        await run.begins()
        stopped = await run.user.atomic("stop", "--cancel", run.session.name)
        await running.over()
    assert stopped.exit_code == 0, stopped
    assert f"what its workers have left is parked: atomic salvage {run.short}" in stopped.stderr
    assert run.parked() == [f"refs/atomic/{run.session.name}/1/1-cut-1"]
    listed = await run.user.atomic("salvage", run.short)
    assert "1/1-cut-1" in listed.stdout
    assert "resume" not in listed.stdout + listed.stderr
    to = tmp_path / "salvaged"
    assert (await run.user.atomic("salvage", run.short, "1", "--to", str(to))).exit_code == 0
    assert (to / "half.txt").read_text() == "half\n"
    pruned = await run.user.atomic("sessions", "prune", "--status", "cancelled", "--yes")
    assert (pruned.exit_code, pruned.stdout.endswith("1 deleted.\n")) == (0, True), pruned
    assert run.parked() == []


@pytest.mark.parametrize("kind", [KINDS[0], pytest.param(KINDS[1], marks=pytest.mark.ci)])
async def test_salvage_parks_the_work_of_a_killed_run_which_still_continues_in_it(tmp_path: Path, kind: str) -> None:
    run = Left(tmp_path, kind)
    async with started(run.user, *run.words):
        await run.begins()
        owned = await run.user.atomic("salvage", run.short)
        assert (owned.exit_code, run.parked()) == (1, [])
    to = tmp_path / "salvaged"
    done = await run.user.atomic("salvage", run.short, "1", "--to", str(to))
    assert done.exit_code == 0, done
    assert (to / "half.txt").read_text() == "half\n"
    assert (await run.user.atomic("salvage", run.short)).stdout.count("1/1-cut-") == 1
    run.play(writing("1"), APPROVE)
    again = await run.resume()
    assert again.status == ("completed", "done", 0), again.end
    files = run.git("ls-tree", "--name-only", f"atomic/{run.short}").split()
    assert {"half.txt", "part1.txt"} <= {*files}


async def test_prune_fails_if_work_is_kept_nowhere_else(tmp_path: Path) -> None:
    run = Left(tmp_path, "overlay")
    async with started(run.user, *run.words):
        await run.begins()
    pruned = await run.user.atomic("sessions", "prune", "--status", "interrupted", "--yes")
    assert pruned.exit_code == ExitCode.FAILED, pruned
    assert f"atomic salvage {run.short} parks it, or delete that folder first" in pruned.stderr
    assert (await run.user.atomic("salvage", run.short)).exit_code == 0
    assert (await run.user.atomic("sessions", "prune", "--status", "interrupted", "--yes")).exit_code == 0
