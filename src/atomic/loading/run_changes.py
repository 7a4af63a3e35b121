"""Save the changes that a run makes to the project's code while it runs.

A run may continue with the code that it was started with and with its own changes to
it. After `kill -9` its changes cannot be distinguished from changes of other programs,
so they are saved in `session.json` after each call of an agent and each step.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from atomic.loading import trust
from atomic.sessions.store import Session

SECONDS = 1.0  # between two checks of the project; more if a check takes long
_SHARE = 50  # a check may take this fraction of the time at most


class RunChanges:
    """Saves the changes of a run, if the project was approved at its start."""

    def __init__(self, session: Session, *, approved: bool) -> None:
        self._session = session
        self._approved = approved
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def note(self) -> None:
        """Check the project now, or when the next check is due.

        Call it after work that may change files.
        """
        if not self._approved or self._session.record.trust is None or self._timer is not None:
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
        """Return the trust of this run with its changes until now."""
        known = self._session.record.trust
        if known is None or not self._approved:
            return known
        started = msgspec.convert(msgspec.to_builtins(known), trust.RunTrust)
        return started.note(trust.look(Path(self._session.record.project)))

    def close(self) -> None:
        """Stop; later changes are not changes of the run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
