"""Deps, clocks and nodes for the tests of signals and timers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atomic.workflows import Journal, MemoryJournal, Node, NodeContext, RunResult, SqliteJournal, node
from tests.graph.engine.small import LIMIT, S


class Clock:
    """A wall clock that tests can set; otherwise it goes on like the machine's."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Host:
    """The deps of a run. With `stays` a wait for a signal keeps the process."""

    def __init__(self, *, stays: bool = False, park: bool = False, clock: Clock | None = None) -> None:
        self.waits_for_signals = stays
        self.park = park
        self.clock = clock or Clock()


def receive(id: str, *names: str, **options: Any) -> Node[S]:
    """Return a node that logs the data of a signal of each name."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [str(await ctx.wait_for(name, **options)) for name in names]}

    return node(id, run)


def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


async def finish(task: asyncio.Task[RunResult[S]]) -> RunResult[S]:
    """Return the result of a run in a task."""
    async with asyncio.timeout(LIMIT):
        return await asyncio.shield(task)
