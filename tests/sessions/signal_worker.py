"""A run that receives numbers as signals: `signal_worker.py JOURNAL COUNT`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

from atomic.workflows import CompiledGraph, NodeContext, RunStatus, SqliteJournal, State, graph, reducers

RUN = "run"


class Host:
    waits_for_signals = True


class Numbers(State):
    numbers: Annotated[list[int], reducers.concat] = []


def counting(count: int) -> CompiledGraph[Numbers]:
    async def one(ctx: NodeContext[Numbers]) -> dict[str, Any]:
        return {"numbers": [await ctx.wait_for("number", returns=int)]}

    loop = graph(Numbers).loop(graph(Numbers).node("one", one), until=lambda state: len(state.numbers) >= count)
    return loop.compile(max_steps=10 * count)


def main(path: str, count: int) -> None:
    compiled = counting(count)
    with SqliteJournal(path) as journal:
        if any(run.execution_id == RUN for run in journal.list()):
            result = asyncio.run(compiled.resume(journal, RUN, deps=Host()))
        else:
            result = asyncio.run(compiled.run(journal=journal, execution_id=RUN, deps=Host()))
    sys.exit(0 if result.status is RunStatus.COMPLETED else 1)


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), int(sys.argv[2]))
