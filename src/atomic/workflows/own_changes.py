"""What a run itself makes of the project's code, noted while it goes on.

A run may go on with what it was started with and with what it changed itself. After `kill -9` nobody could tell its
changes from a stranger's, so they are in `session.json` before that: behind each call of an agent and each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec

from atomic.sessions.store import Session

SECONDS = 1.0  # between two looks at the project, and more where a look takes long
_SHARE = 50  # a look may take this part of the time at most


class OwnChanges:
    """Keeps what a run was started with true; `after` adds what is different now, None: there is nothing to keep."""

    def __init__(self, session: Session, after: Callable[[Any], Any] | None) -> None:
        self._session, self._after = session, after
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Something has ended that may have changed files: look now, or as soon as it is time again."""
        if self._after is None or self._session.record.trust is None or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._look()
        else:
            self._timer = loop.call_at(self._next, self._look)

    def _look(self) -> None:
        self._timer, began = None, perf_counter()
        before, after = self._session.record.trust, self.now()
        if msgspec.to_builtins(after) != msgspec.to_builtins(before):
            self._session.save(trust=after)
        self._next = asyncio.get_running_loop().time() + max(SECONDS, _SHARE * (perf_counter() - began))

    def now(self) -> Any:
        """What is trusted for this run, as the project is now; for the run's own end too."""
        trust = self._session.record.trust
        return trust if trust is None or self._after is None else self._after(trust)

    def close(self) -> None:
        """The run is over: what is changed from now on is not its work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
