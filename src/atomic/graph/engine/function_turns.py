"""Give results to a workflow function one by one, each when it has nothing else to do.

A function is deterministic between two results: what it does after one depends only on
the results before. So if each result comes when the function has done all that it could
do, the order of the results alone decides what happens, and a replay repeats it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from atomic.graph.engine.journal_writer import JournalWriter

MAX_HOLD = 0.01  # seconds that the row of a finished step waits for others, to share a disk sync
SETTLING_TURNS = 100  # of the event loop; then others, which never rest, keep it busy


class Turn:
    """The place of a result in the order. It is due when its record is on disk."""

    __slots__ = ("future", "is_due", "is_over")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.is_due = False
        self.is_over = False


class Turns:
    """The results that wait for their turn, and whether the function is at rest."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, at_rest: Callable[[], None], writer: JournalWriter | None
    ) -> None:
        self.is_settling = False
        self._loop = loop
        self._at_rest = at_rest  # called when the function is at rest, and no result waits
        self._waiting: deque[Turn] = deque()
        self._writer = writer
        if writer is not None:
            writer.is_held = self._has_due
        # The loop's own lists are the only way to see that nothing is left to do. Loops
        # of other libraries hide them; those get a fixed number of turns.
        self._ready = cast("deque[Any] | None", getattr(loop, "_ready", None))
        self._timers = cast("list[asyncio.TimerHandle] | None", getattr(loop, "_scheduled", None))

    def is_quiet(self, calls: int) -> bool:
        """Return whether a result can be given at once. `calls` run at the same time."""
        if self._waiting:
            return False
        if self._ready is None:
            return calls == 1 and not self.is_settling
        return len(self._ready) <= self.is_settling  # `_settle` itself may be the only one left

    @property
    def is_idle(self) -> bool:
        """Return whether nothing else can run now, as far as the loop shows it."""
        return self._ready is not None and not self._ready

    def timers_besides(self, own: asyncio.TimerHandle | None) -> list[asyncio.TimerHandle] | None:
        """Return the timers that may wake something, except the engine's own; None: unknown."""
        if self._timers is None:
            return None
        return [timer for timer in self._timers if timer is not own and not timer.cancelled()]

    def enter(self) -> Turn:
        turn = Turn(self._loop.create_future())
        self._waiting.append(turn)
        return turn

    def due(self, turn: Turn) -> None:
        """Give a result as soon as it is its turn: its record is on disk."""
        turn.is_due = True
        self.settle()

    async def rest(self) -> None:
        """Return when the function has done all that it can do now."""
        turn = self.enter()
        self.due(turn)
        await turn.future

    def leave(self, turn: Turn) -> None:
        """Take a turn out of the order, because its call was cancelled."""
        turn.is_over = True
        self.settle()

    def settle(self) -> None:
        """Let the function do all that it can do now, then give the next result."""
        if not self.is_settling:
            self.is_settling = True
            self._loop.call_soon(self._settle, SETTLING_TURNS)

    def _has_due(self) -> bool:
        """Return whether a result can be given before rows that are not written yet."""
        return bool(self._waiting) and self._waiting[0].is_due

    def _settle(self, turns: int) -> None:
        if turns and (self._ready is None or self._ready):
            self._loop.call_soon(self._settle, turns - 1)
            return
        waiting = self._waiting
        while waiting and (waiting[0].is_over or waiting[0].future.done()):
            waiting.popleft()
        if self._has_due():
            if self._writer is not None:
                self._writer.write_held(older_than=MAX_HOLD)
            waiting.popleft().future.set_result(None)
            self._loop.call_soon(self._settle, SETTLING_TURNS)
            return
        self.is_settling = False
        if self._writer is not None:
            self._writer.write_held()
        if not waiting:
            self._at_rest()
