"""The changes that a run itself makes to the project's code, saved while it runs.

A run may continue with the code that it was started with and with its own changes to it.
After `kill -9` its changes could not be told from those of other programs, so they are
saved in `session.json` after each call of an agent and each step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec

from atomic.sessions.store import Session

SECONDS = 1.0  # between two checks of the project; more if a check takes long
_SHARE = 50  # a check may take this fraction of the time at most


class RunChanges:
    """Saves the changes of a run. `after` adds the current differences to what is trusted; None: nothing is trusted."""

    def __init__(self, session: Session, after: Callable[[Any], Any] | None) -> None:
        self._session = session
        self._after = after
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Check the project after work that may have changed files: now, or when the next check is due."""
        if self._after is None or self._session.record.trust is None or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next:
            self._check()
        else:
            self._timer = loop.call_at(self._next, self._check)

    def _check(self) -> None:
        self._timer = None
        began = perf_counter()
        before = self._session.record.trust
        after = self.now()
        if msgspec.to_builtins(after) != msgspec.to_builtins(before):
            self._session.save(trust=after)
        self._next = asyncio.get_running_loop().time() + max(SECONDS, _SHARE * (perf_counter() - began))

    def now(self) -> Any:
        """Return what is trusted for this run, with the changes until now."""
        trust = self._session.record.trust
        if trust is None or self._after is None:
            return trust
        return self._after(trust)

    def close(self) -> None:
        """Stop: later changes are not those of the run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
