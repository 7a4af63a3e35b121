"""What Atomic itself takes of a run: 24 tasks of a minute each, with the minutes compressed and scaled back.

    python tests/torture/ralph_overhead.py

Measured is the CPU of Atomic's own process, without its children: once for a whole run whose turns take no time, once
for the waiting while agents are at work. A turn of a minute costs what a short one costs, and a minute of waiting.
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
WATCHED = 20.0  # seconds of waiting that are looked at
_WRAPPER = """
import atexit, json, os, resource, runpy, sys
def tell(me=os.getpid()):
    if os.getpid() == me:
        used = resource.getrusage(resource.RUSAGE_SELF)
        open(os.environ["USED"], "w").write(json.dumps(used.ru_utime + used.ru_stime))
atexit.register(tell)
runpy.run_module("atomic", run_name="__main__", alter_sys=True)
"""


def used_by_a_run(folder: Path) -> float:
    """Seconds of CPU that a whole run takes whose turns take next to no time."""
    stage = Stage(folder, pause=PAUSE)
    command = [sys.executable, "-c", _WRAPPER, *stage.next_command()[3:]]
    env = {**stage.env, "USED": str(folder / "used.json")}
    done = subprocess.run(
        command, cwd=stage.project, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=PATIENCE
    )
    if done.returncode != 0:
        raise SystemExit(f"the run ended with {done.returncode}")
    return msgspec.json.decode((folder / "used.json").read_bytes(), type=float)


def used_by_waiting(folder: Path) -> float:
    """Seconds of CPU for each second in which all wait for agents."""
    stage = Stage(folder, pause=2 * WATCHED)
    life = Life(stage, 0)
    try:
        until = time.monotonic() + PATIENCE
        while sum(entry.role == "worker" for entry in stage.ledger.since(0)) < LAYERS[0]:
            if time.monotonic() > until or not life.goes_on_for(0.1):
                raise SystemExit(f"the workers have not begun: {life.complaint}")
        life.goes_on_for(2)  # until all is written that has begun
        before = _used(life.process.pid)
        life.goes_on_for(WATCHED)
        return (_used(life.process.pid) - before) / WATCHED
    finally:
        life.kill()


def _used(pid: int) -> float:
    facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="atomic-torture-") as name:
        folder = Path(name).resolve()
        run, waiting = used_by_a_run(folder / "run"), used_by_waiting(folder / "waiting")
    print(f"{sum(LAYERS)} tasks: {run:.2f} s of CPU in Atomic's own process; waiting: {waiting * 60:.2f} s a minute")
    shares = {"one after the other": sum(LAYERS) * TASK, "six at once": len(LAYERS) * TASK}
    for how, seconds in shares.items():
        share = (run + waiting * seconds) / seconds
        print(f"tasks of a minute, {how}: {seconds / 60:.0f} minutes, {share:.2%} of them Atomic's (scaled)")
    return 0 if (run + waiting * sum(LAYERS) * TASK) / (sum(LAYERS) * TASK) <= 0.01 else 1


if __name__ == "__main__":
    raise SystemExit(main())
