"""Give up on an agent that retries a failed model call endlessly.

Agents report retries only in their logs: OpenCode on stderr, Copilot in a file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec

from atomic.providers.acp.limits import find_limit
from atomic.providers.acp.logs import LogFile

PATIENCE = 30.0  # seconds from the first failure without a success
_SLACK = 1.0  # seconds; log and protocol are not in order
_MAX_FAILURES = 4  # before, only a limit counts: a model may take long
_INTERVAL = 0.5  # seconds

# OpenCode generates titles with small calls, which do not matter.
_OPENCODE = re.compile(r'message="stream error".* small=false .*?error\.error="?(?:AI_\w+: )?(.*?)"?\s*$')
_COPILOT = re.compile(r"Model provider request failed (\{.*\})")


class _Failure(msgspec.Struct):
    http_status: int | None = None
    failure_kind: str = ""
    retry_after_ms: float | None = None


class RetryMonitor:
    """Reads the log.

    `worked` returns the time of the last progress, `moved` of the last update.
    """

    def __init__(self, *, worked: Callable[[], float], moved: Callable[[], float]) -> None:
        self._worked = worked
        self._moved = moved
        self._clock = asyncio.get_running_loop().time
        self._log: LogFile | None = None
        self._reason_to_look = asyncio.Event()  # a failure was logged, or a log file exists
        self._rest = ""  # an incomplete line
        self._message = ""  # the last failure
        self._first = 0.0  # times of the first and last failure
        self._last = 0.0
        self._count = 0

    def program_started(self, log: LogFile | None) -> None:
        self._log = log
        self._rest = ""
        if log is not None:
            self._reason_to_look.set()

    def begin(self) -> None:
        """Start a new turn and forget earlier failures."""
        self.latest()
        self._count = 0
        self._message = ""
        if self._log is None:
            self._reason_to_look.clear()

    def receive(self, log: bytes) -> None:
        """Read a piece of the log."""
        *lines, self._rest = (self._rest + log.decode(errors="replace")).split("\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            if message := _failure_in(line):
                self._note(message)

    def latest(self) -> str:
        """Return the last failure in this turn, "" without one."""
        if self._log is not None:
            self.receive(self._log.read())
        return self._message

    async def wait_until_hopeless(self) -> str:
        """Wait until more retries are useless, and return the failure."""
        while not self._is_hopeless():
            await self._reason_to_look.wait()
            await asyncio.sleep(_INTERVAL)
            self.latest()
        return self._message

    def _is_hopeless(self) -> bool:
        if not self._count or self._was_served() or self._moved() > self._last + _SLACK:
            return False
        too_often = self._count >= _MAX_FAILURES or find_limit(self._message) is not None
        return too_often and self._clock() - self._first >= PATIENCE

    def _was_served(self) -> bool:
        return self._worked() > self._first + _SLACK

    def _note(self, message: str) -> None:
        self._reason_to_look.set()
        self._message = message
        self._last = self._clock()
        if self._count == 0 or self._was_served():
            self._count = 0
            self._first = self._last
        self._count += 1


def _failure_in(line: str) -> str:
    """Return the failed call that a log line describes, "" for other lines."""
    if found := _OPENCODE.search(line):
        return found[1] or "the model call failed"
    if found := _COPILOT.search(line):
        try:
            failure = msgspec.json.decode(found[1], type=_Failure)
        except msgspec.MsgspecError:
            return ""
        after = f", retry after {failure.retry_after_ms / 1000:g} s" if failure.retry_after_ms else ""
        return f"HTTP {failure.http_status}{after}" if failure.http_status else failure.failure_kind
    return ""
