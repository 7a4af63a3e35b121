"""A workflow with a loop, a parallel and a question is killed with `kill -9` in the middle, and continues.

    .venv/bin/python examples/kill.py

Three processes work on one run: the first is killed, the second continues until it asks a question, the third
brings the answer. Every execution of a node is also written to a ledger outside of Atomic; at the end the two are
compared. Needs no key, no network and no terminal.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from atomic.workflows import Node, NodeContext, RunStatus, SqliteJournal, State, graph, node, reducers

RUN = "release"
KILL_AT = "unit-tests"


class Release(State):
    """The state between two steps."""

    chapters: Annotated[list[str], reducers.concat] = []
    checks: Annotated[dict[str, str], reducers.merge] = {}
    shipped: str = ""


def work(id: str, seconds: float, update: Callable[[Release], dict[str, Any]] | None = None) -> Node[Release]:
    """Return a node that works for a while, prints its progress, and extends the ledger."""

    async def run(ctx: NodeContext[Release]) -> dict[str, Any]:
        again = "" if ctx.attempt == 1 else f"   again, attempt {ctx.attempt}: it was cut off"
        with Path("ledger.txt").open("a") as ledger:
            ledger.write(f"{ctx.step_id}\n")
        say(f"  ▶ {id}{again}")
        await asyncio.sleep(seconds)
        say(f"  ✓ {id}")
        return update(ctx.state) if update is not None else {}

    return node(id, run)


release = (
    graph(Release)
    .then(work("plan", 0.3))
    .loop(
        work("write", 0.3, lambda s: {"chapters": [f"chapter {len(s.chapters) + 1}"]}),
        until=lambda s: len(s.chapters) == 3,
        max_iterations=10,
    )
    .parallel(
        {
            "lint": work("lint", 0.2, lambda s: {"checks": {"lint": "clean"}}),
            "tests": [work("install", 0.6), work(KILL_AT, 1.0, lambda s: {"checks": {"tests": "passed"}})],
        }
    )
    .ask_user("ship", "All checks passed. Ship it?", options=["yes", "no"], default="yes")
    .then(work("publish", 0.3, lambda s: {"shipped": s.outputs["ship"]}))
    .compile("release", "Write, check, ask, publish.")
)


def say(text: str = "") -> None:
    print(text, flush=True)


async def work_on_the_run(answer: str | None) -> int:
    """Start the run or resume it, until it is done or asks a question."""
    with SqliteJournal("journal.db") as journal:
        if any(run.execution_id == RUN for run in journal.list()):
            result = await release.resume(journal, RUN, answers={"ship": answer} if answer else None)
        else:
            result = await release.run(journal=journal, execution_id=RUN)
    if result.status is RunStatus.PAUSED:
        say(f"  ? {result.questions[0].text}  No host can ask here, so the run waits and the process ends.")
        return 5
    state = result.state
    say(f"  {result.status}: {len(state.chapters)} chapters, {state.checks}, shipped: {state.shipped}")
    return 0 if result.status is RunStatus.COMPLETED else 1


def start(folder: Path, *words: str, kill_at: str | None = None) -> int:
    """Run this file in a new process; kill it with SIGKILL when `kill_at` has begun."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--work", *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            say(line.rstrip())
            if kill_at is not None and line.startswith(f"  ▶ {kill_at}"):
                os.kill(child.pid, signal.SIGKILL)
                say(f"  ☠ kill -9 {child.pid}")
    return child.returncode


def show_journal(folder: Path) -> set[str]:
    """Print the journal of the killed process; return the steps that must not run again."""
    with SqliteJournal(folder / "journal.db") as journal:
        records = journal.records(RUN)
        state = release.load(journal, RUN)
    say(f"  finished and recorded: {', '.join(record.node_id for record in records)}")
    say(f"  state: chapters={state.chapters} checks={state.checks}")
    return {record.step_id for record in records}


def compare(folder: Path, recorded: set[str]) -> int:
    """Check the ledger: no recorded step ran again, only the interrupted one ran twice."""
    ran = Counter((folder / "ledger.txt").read_text().split())
    twice = {step_id for step_id, times in ran.items() if times > 1}
    names = ", ".join(sorted(step_id.partition(":")[2] for step_id in twice))
    again = twice & recorded
    say(f"  {len(ran)} steps, {sum(ran.values())} executions; twice: {names}; recorded and run again: {len(again)}")
    return 1 if again else 0


def main() -> int:
    say(release.draw(width=78))
    with tempfile.TemporaryDirectory(prefix="atomic-kill-") as name:
        folder = Path(name)
        say("\n1. A process begins the run. It is killed while the tests run.")
        start(folder, kill_at=KILL_AT)
        say("\n2. The journal on disk:")
        recorded = show_journal(folder)
        say("\n3. Another process continues. Recorded steps do not run again.")
        start(folder)
        say("\n4. Any time later, the answer comes from a third process.")
        code = start(folder, "yes")
        say("\n5. The ledger, which Atomic knows nothing about:")
        return compare(folder, recorded) or code


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        raise SystemExit(asyncio.run(work_on_the_run(sys.argv[2] if len(sys.argv) > 2 else None)))
    raise SystemExit(main())
