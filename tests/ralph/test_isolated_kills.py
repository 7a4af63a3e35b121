"""Kill Atomic at the writes of a run with workspaces, and resume it: nothing is lost."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, Sandbox, worker
from tests.ralph.test_isolated import KINDS, task, tasks_file
from tests.support.checkouts import checkout_state
from tests.support.user import processes
from tests.support.waits import eventually

# Written to `sitecustomize.py`: Atomic logs its writes, and dies at one of them.
FAULT = """
import json, os, shutil, signal

WRITES = {"fetch", "checkout", "bundle", "rebase", "init", "pack-objects"}
seen = 0

def point(name):
    global seen
    with open(LOG, "a") as log:
        log.write(json.dumps(name) + "\\n")
    seen += name.startswith(WORD)
    if seen == NUMBER:
        os.kill(os.getpid(), signal.SIGKILL)

def around(function, name_of):
    def call(*arguments, **options):
        name = name_of(*arguments)
        point("before " + name)
        result = function(*arguments, **options)
        point("after " + name)
        return result
    return call

def command(argv):
    words = [str(word) for word in argv]
    if "update-ref" in words:
        return "moving the branch" if any("refs/heads/atomic/" in word for word in words) else "update-ref"
    return next((word for word in words if word in WRITES), "")

def removal(path, *rest):
    name = os.path.basename(path)
    return "removing " + ("the folder of the run" if len(name) == 36 else name)

def watch():
    import atomic.processes, atomic.sessions.facts
    execute = atomic.processes.execute

    async def watched(*argv, **options):
        done = await execute(*argv, **options)
        if word := command(argv):
            point("after " + word)
        return done

    atomic.processes.execute = watched
    # In a view, its first process runs git. The modules that it needs take `execute` along.
    import atomic.workspaces.view_orders
    orders = atomic.workspaces.view_orders.ViewOrders
    run = orders.run

    async def ordered(self, argv, *rest, **options):
        done = await run(self, argv, *rest, **options)
        if word := command(argv):
            point("after " + word)
        return done

    orders.run = ordered
    facts = atomic.sessions.facts.Facts
    facts.set = around(facts.set, lambda self, name, value: "fact " + name)
    shutil.rmtree = around(shutil.rmtree, removal)
    os.rename = around(os.rename, lambda old, new: "renaming " + os.path.basename(new))

if not os.path.exists(SPENT):
    watch()
"""

# A point, and which of its kind: 1 is the first.
MOMENTS = {
    "the branch is recorded and not made": ("after fact branch", 1),
    "the branch is made": ("after moving the branch", 1),
    "the base is begun": ("after init", 1),
    "the base is checked out": ("after checkout", 1),
    "the base is complete": ("after renaming base", 1),
    "the first check has ended": ("before removing check-baseline", 1),
    "a workspace is checked out": ("after checkout", 3),
    "a turn has ended": ("after fact calls/", 3),
    "a capture is almost complete": ("after update-ref", 2),
    "a bundle is written": ("after bundle", 1),
    "work is parked and not recorded": ("after fetch", 1),
    "a check has ended": ("before removing check-", 1),
    "a check is half removed": ("after removing check-", 1),
    "the branch is moved and not recorded": ("after moving the branch", 2),
    "a task has landed": ("after fact branch", 2),
    "a workspace will be removed": ("before removing task-", 1),
    "a workspace is removed": ("after removing task-", 1),
    "commits are rebased": ("after rebase", 1),
    "rebased commits are kept": ("after fetch", 3),
    "the second task has landed": ("after fact branch", 3),
    "a review has ended": ("before removing task-review-", 1),
    "the run is closed": ("before removing the folder of the run", 1),
}


class Deadly:
    """A run of two tasks, of which one must be rebased, and its death at one point."""

    def __init__(self, folder: Path, kind: str, word: str = "", number: int = 0) -> None:
        folder.mkdir()
        loose = worker("1", {"write": {"part1.txt": "part 1\n", "loose.txt": "loose\n"}})
        commits = {"sh": "echo part 2 > part2.txt && git add part2.txt && (git commit -qm two || true)"}
        self.sandbox = Sandbox(folder, loose, worker("2", commits), APPROVE, isolate=kind)
        (self.sandbox.project / "draft.txt").write_text("mine\n")
        self.before = checkout_state(self.sandbox.project)
        self.log = folder / "points.jsonl"
        self.spent = folder / "spent"
        faults = folder / "faults"
        faults.mkdir()
        settings = {"LOG": str(self.log), "SPENT": str(self.spent), "WORD": word, "NUMBER": number}
        lines = [f"{name} = {value!r}\n" for name, value in settings.items()]
        (faults / "sitecustomize.py").write_text("".join(lines) + FAULT)
        env = self.sandbox.user.env
        env["PYTHONPATH"] = f"{faults}:{env['PYTHONPATH']}"

    async def run(self) -> int:
        listed = tasks_file(self.sandbox, task("1"), task("2"))
        done = await self.sandbox.ralph("--tasks", listed, "--workers", "2", "--verify", "test -f README.md")
        self.spent.touch()
        return done.exit_code

    @property
    def points(self) -> list[str]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    async def resume(self) -> None:
        """Resume the run, and check that nothing is lost, repeated, touched or left behind."""
        done = await self.sandbox.resume()
        assert done.status == ("completed", "done", 0), (self.points[-1], done.end, done.stderr)
        await self.check_end()
        turns = Counter(one for one in self.sandbox.callers if one.startswith("worker"))
        assert max(turns.values()) <= 2, (self.points[-1], turns)

    async def check_end(self) -> None:
        sandbox = self.sandbox
        branch = f"atomic/{sandbox.session.name[:8]}"
        files = sandbox.git("ls-tree", "--name-only", branch).split()
        assert files == ["README.md", "loose.txt", "part1.txt", "part2.txt"]
        assert len(sandbox.git("log", "--format=%s", f"main..{branch}").splitlines()) == 2
        assert self.before.changes_to(checkout_state(sandbox.project)) == []
        assert [*(sandbox.user.home / ".atomic" / "workspaces").glob("*")] == []
        await eventually(lambda: not processes(sandbox.user.home))
        assert all(sandbox.evidence(id)["merged"] for id in ("1", "2"))
        parked = sandbox.git("for-each-ref", "--format=%(refname)", "refs/atomic/")
        assert all(f"/{id}/1" in parked for id in ("1", "2"))


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["overlay", pytest.param("clone", marks=pytest.mark.full)])
@pytest.mark.parametrize(("word", "number"), MOMENTS.values(), ids=MOMENTS)
async def test_a_run_loses_nothing_if_it_is_killed_when(tmp_path: Path, kind: str, word: str, number: int) -> None:
    killed = Deadly(tmp_path / "killed", kind, word, number)
    assert await killed.run() == -signal.SIGKILL
    await killed.resume()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_is_killed_at_any_write_loses_nothing(tmp_path: Path, kind: str) -> None:
    whole = Deadly(tmp_path / "whole", kind)
    assert await whole.run() == 0
    await whole.check_end()
    for number in range(1, len(whole.points) + 1):
        killed = Deadly(tmp_path / str(number), kind, "", number)
        # Tasks run side by side, so another run may have fewer points. Its first points
        # are before there is a session.
        if await killed.run() != 0 and [*killed.sandbox.user.home.glob(".atomic/sessions/*/journal.db")]:
            await killed.resume()
