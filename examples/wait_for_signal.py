"""A run that waits for a decision of another program, and for a time.

python examples/wait_for_signal.py                   # builds, and ends: it waits
python examples/wait_for_signal.py send true Ann     # a webhook would do this
python examples/wait_for_signal.py                   # continues, and deploys
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from atomic.workflows import NodeContext, RunStatus, SqliteJournal, State, graph

JOURNAL = Path(".release.db")
RUN = "release"


class Decision(msgspec.Struct):
    approve: bool
    by: str


class Release(State):
    approved_by: str = ""


def build() -> None:
    print("building (this is printed once, however often you start the program)")


async def wait(ctx: NodeContext[Release]) -> dict[str, str]:
    decision = await ctx.wait_for("decided", timeout="2d", returns=Decision)
    return {"approved_by": decision.by if decision.approve else ""}


release = (
    graph(Release)
    .tool("build", build)
    .node("wait", wait)
    .sleep("cool-down", seconds=0.2)  # with days=1 it would sleep for a day, also across kills
    .compile("release")
)


async def main() -> int:
    with SqliteJournal(JOURNAL) as journal:
        if not any(run.execution_id == RUN for run in journal.list()):
            result = await release.run(journal=journal, execution_id=RUN)
        else:
            result = await release.resume(journal, RUN)
    if result.status is RunStatus.PAUSED:
        print(f"it waits for: {', '.join(result.signals)}")
        return 5
    print(f"approved by {result.state.approved_by or 'nobody'}")
    JOURNAL.unlink()
    return 0


def send(approve: str, by: str) -> None:
    with SqliteJournal(JOURNAL) as journal:  # any process may do this, also while another one owns the run
        journal.signal(RUN, "decided", Decision(approve == "true", by))


if __name__ == "__main__":
    if sys.argv[1:2] == ["send"]:
        send(*sys.argv[2:4])
    else:
        raise SystemExit(asyncio.run(main()))
