"""Measure Atomic's own share of a run: 24 tasks of a minute, with scaled waits.

    python tests/torture/ralph_overhead.py

The measure is the CPU time of Atomic's process, git and the guards, without agents and
checks: once for a whole run with instant turns, once for waiting while agents run. A turn
of a minute costs a short turn plus a minute of waiting.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from tests.torture.acp_agent import LAYERS, PAUSE
from tests.torture.ralph import PATIENCE, Life, Stage

TASK = 60.0  # seconds
WATCHED = 20.0  # seconds of waiting that are measured
LIMIT = 0.01
# The CPU time of a child is known only when it is waited for.
_WRAPPER = """
import atexit, json, os, resource, runpy, subprocess, sys
used = {"atomic": 0.0, "git": 0.0, "guards": 0.0, "gates": 0.0, "agents": 0.0}
def seconds(who):
    told = resource.getrusage(who)
    return told.ru_utime + told.ru_stime
def kind(words):
    if words[0] == "/bin/sh":
        return "guards"
    return {"git": "git", "sh": "gates"}.get(words[0], "agents")
def counted(method):
    def call(self, *words, **options):
        before = seconds(resource.RUSAGE_CHILDREN)
        try:
            return method(self, *words, **options)
        finally:
            used[kind(self.args)] += seconds(resource.RUSAGE_CHILDREN) - before
    return call
subprocess.Popen.poll = counted(subprocess.Popen.poll)
subprocess.Popen.wait = counted(subprocess.Popen.wait)
def tell(me=os.getpid()):
    if os.getpid() == me:
        used["atomic"] = seconds(resource.RUSAGE_SELF)
        open(os.environ["USED"], "w").write(json.dumps(used))
atexit.register(tell)
runpy.run_module("atomic", run_name="__main__", alter_sys=True)
"""


class Used(msgspec.Struct, frozen=True):
    """CPU seconds of a run, by consumer."""

    atomic: float
    git: float
    guards: float
    gates: float
    agents: float

    @property
    def own(self) -> float:
        return self.atomic + self.git + self.guards


def used_by_a_run(folder: Path) -> Used:
    """Measure a whole run whose turns take almost no time."""
    stage = Stage(folder, pause=PAUSE)
    command = [sys.executable, "-c", _WRAPPER, *stage.next_command()[3:]]
    env = {**stage.env, "USED": str(folder / "used.json")}
    done = subprocess.run(
        command, cwd=stage.project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=PATIENCE
    )
    if done.returncode != 0:
        raise SystemExit(f"the run ended with {done.returncode}")
    return msgspec.json.decode((folder / "used.json").read_bytes(), type=Used)


def used_by_waiting(folder: Path) -> float:
    """Return the CPU seconds per second in which all workers wait for agents."""
    stage = Stage(folder, pause=2 * WATCHED)
    life = Life(stage, 0)
    try:
        until = time.monotonic() + PATIENCE
        while sum(entry.role == "worker" for entry in stage.ledger.since(0)) < LAYERS[0]:
            if time.monotonic() > until or not life.runs_for(0.1):
                raise SystemExit(f"the workers have not begun: {life.complaint}")
        life.runs_for(2)  # until pending writes are done
        before = _used(life.process.pid)
        life.runs_for(WATCHED)
        return (_used(life.process.pid) - before) / WATCHED
    finally:
        life.kill()


def _used(pid: int) -> float:
    facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as name:
        folder = Path(name).resolve()
        run = used_by_a_run(folder / "run")
        waiting = used_by_waiting(folder / "waiting")
    print(
        f"{sum(LAYERS)} tasks: {run.own:.2f} s of CPU (Atomic {run.atomic:.2f}, git {run.git:.2f}, guards "
        f"{run.guards:.2f}; not counted: agents {run.agents:.2f}, gates {run.gates:.2f}); waiting: "
        f"{waiting * 60:.2f} s a minute"
    )
    worked = sum(LAYERS) * TASK
    shares = [_share(how, seconds, run.own + waiting * seconds, worked) for how, seconds in _LENGTHS.items()]
    return 0 if max(shares) <= LIMIT else 1


# Each layer waits for the one before it, and none has more than six tasks.
_LENGTHS = {"one after the other": sum(LAYERS) * TASK, "six at once": len(LAYERS) * TASK}


def _share(how: str, seconds: float, own: float, worked: float) -> float:
    """Print Atomic's share of the run and of the work; return its share of the run."""
    print(
        f"tasks of a minute, {how}: {seconds / 60:.0f} minutes, {own:.2f} s of CPU are Atomic's (scaled): "
        f"{own / seconds:.2%} of the run, {own / worked:.2%} of the {worked / 60:.0f} minutes of work"
    )
    return own / seconds


if __name__ == "__main__":
    raise SystemExit(main())
