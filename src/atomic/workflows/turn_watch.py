"""Watches one turn of an agent and says when it has passed a limit.

Three clocks: how long the turn has run, how long its agent has been silent, and what the run may still spend. Time in
which a person is asked counts for none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atomic.workflows.errors import TurnCutError
from atomic.workflows.limits import duration

if TYPE_CHECKING:
    from atomic.workflows.governor import Account, CapReached, Governor

LOOK_SECONDS = 5.0  # the wall clock of --max-time may jump; a sleep does not notice that the machine slept


class TurnWatch:
    """The limits of one turn. `passed` returns when the first of them is passed."""

    def __init__(self, governor: Governor, account: Account) -> None:
        self._governor, self._account = governor, account
        self._turn_limit = governor.caps.turn_limit_of(account.role)
        self._idle_limit = governor.caps.idle_limit or None
        self._clock = asyncio.get_running_loop().time
        self._began = self._heard = self._clock()
        self._waiting = 0  # questions that a person has not answered yet
        self._asked_at = 0.0
        self._news = asyncio.Event()  # a figure came, or a person has answered

    def hear(self) -> None:
        """Note that the agent has done something."""
        self._heard = self._clock()

    def count(self) -> None:
        """Note that there is a new figure of what the turn took."""
        self._news.set()

    @contextmanager
    def asking(self) -> Generator[None]:
        """Stop the clocks while a person is asked."""
        if not self._waiting:
            self._asked_at = self._clock()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._began += self._clock() - self._asked_at
                self._heard = self._clock()
                self._news.set()

    async def passed(self) -> CapReached | TurnCutError:
        """Wait until the turn has passed one of its limits; which one."""
        while True:
            self._news.clear()
            reached = self._governor.cut_for(self._account)
            if reached is not None:
                return reached
            if not self._waiting and (late := self._late()) is not None:
                return late
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _late(self) -> TurnCutError | None:
        now = self._clock()
        if self._turn_limit is not None and now >= self._began + self._turn_limit:
            return TurnCutError(
                f"the turn took longer than {duration(self._turn_limit)} and was interrupted"
                " (--turn-limit TIME changes that limit, 0 removes it)"
            )
        if self._idle_limit is not None and now >= self._heard + self._idle_limit:
            return TurnCutError(
                f"the agent was silent for {duration(self._idle_limit)} and was interrupted (--idle-limit)"
            )
        return None

    def _seconds_to_next(self) -> float | None:
        """How long nothing can happen without news; None: for ever."""
        left = self._governor.seconds_to_cut
        ends = [] if left is None else [min(left, LOOK_SECONDS)]
        now = self._clock()
        if not self._waiting:
            if self._turn_limit is not None:
                ends.append(self._began + self._turn_limit - now)
            if self._idle_limit is not None:
                ends.append(self._heard + self._idle_limit - now)
        return max(0.0, min(ends)) if ends else None
