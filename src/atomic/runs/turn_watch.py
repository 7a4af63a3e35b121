"""Watches one turn of an agent and reports when it passes a limit.

There are three limits: on the time of the turn, on the silence of its agent, and on the
rest of the run's caps. Time that the user needs for an answer does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atomic.base.text import duration
from atomic.workflows.errors import TurnCutError

if TYPE_CHECKING:
    from atomic.runs.budget import Budget, TurnSpending
    from atomic.runs.limits import CapReached

LOOK_SECONDS = 5.0  # the wall clock jumps when the machine was suspended, a sleep does not


class TurnWatch:
    """The limits of one turn. `passed` returns when the first of them is passed."""

    def __init__(self, budget: Budget, spending: TurnSpending) -> None:
        self._budget = budget
        self._spending = spending
        self._turn_limit = budget.caps.turn_limit_of(spending.role)
        self._idle_limit = budget.caps.idle_limit or None
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._active_at = self._began
        self._open_questions = 0
        self._asked_at = 0.0
        self._changed = asyncio.Event()  # new usage was reported, or the user has answered

    def note_activity(self) -> None:
        """Note that the agent is active."""
        self._active_at = self._clock()

    def note_usage(self) -> None:
        """Note that new usage of the turn was reported."""
        self._changed.set()

    @contextmanager
    def asking(self) -> Generator[None]:
        """Stop the clocks while a question to the user is open."""
        if not self._open_questions:
            self._asked_at = self._clock()
        self._open_questions += 1
        try:
            yield
        finally:
            self._open_questions -= 1
            if not self._open_questions:
                self._began += self._clock() - self._asked_at
                self._active_at = self._clock()
                self._changed.set()

    async def passed(self) -> CapReached | TurnCutError:
        """Wait until the turn passes a limit, and return the error for it."""
        while True:
            self._changed.clear()
            reached = self._budget.cut_for(self._spending)
            if reached is not None:
                return reached
            late = None if self._open_questions else self._late()
            if late is not None:
                return late
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _late(self) -> TurnCutError | None:
        now = self._clock()
        if self._turn_limit is not None and now >= self._began + self._turn_limit:
            return TurnCutError(
                f"the turn took longer than {duration(self._turn_limit)} and was interrupted"
                " (--turn-limit TIME changes that limit, 0 removes it)"
            )
        if self._idle_limit is not None and now >= self._active_at + self._idle_limit:
            return TurnCutError(
                f"the agent was silent for {duration(self._idle_limit)} and was interrupted (--idle-limit)"
            )
        return None

    def _seconds_to_next(self) -> float | None:
        """Return how long to wait for a change until a limit can be passed.

        None: no limit.
        """
        left = self._budget.seconds_to_cut
        ends = [] if left is None else [min(left, LOOK_SECONDS)]
        now = self._clock()
        if not self._open_questions:
            if self._turn_limit is not None:
                ends.append(self._began + self._turn_limit - now)
            if self._idle_limit is not None:
                ends.append(self._active_at + self._idle_limit - now)
        return max(0.0, min(ends)) if ends else None
