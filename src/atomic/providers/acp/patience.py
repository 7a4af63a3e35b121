"""An agent that tries a failed call of the model again and again is not waited for for ever.

That it does so, it says only in its log: OpenCode on stderr, Copilot in a file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import msgspec

from atomic.providers.acp.limits import limit_in
from atomic.providers.acp.logs import LogFile

PATIENCE = 30.0  # seconds from the first failure, without a success since
_SLACK = 1.0  # what was said before the failure may be heard behind it: they come by two ways
_TRIES = 4  # before that many, only a limit is a reason to give up: a model may be silent for long
_LOOK = 0.5  # seconds

# OpenCode makes titles by small calls besides; they do not matter.
_OPENCODE = re.compile(r'message="stream error".* small=false .*?error\.error="?(?:AI_\w+: )?(.*?)"?\s*$')
_COPILOT = re.compile(r"Model provider request failed (\{.*\})")


class _Failure(msgspec.Struct):
    http_status: int | None = None
    failure_kind: str = ""
    retry_after_ms: float | None = None


class Complaints:
    """Hears the log. `worked` tells when the work last went on, `moved` when the agent last said anything."""

    def __init__(self, *, worked: Callable[[], float], moved: Callable[[], float]) -> None:
        self._worked, self._moved = worked, moved
        self._clock = asyncio.get_running_loop().time
        self._log: LogFile | None = None
        self._reason_to_look = asyncio.Event()  # a failure was heard, or there is a file that may tell of one
        self._rest = self._words = ""
        self._first = self._last = 0.0
        self._count = 0

    def program_started(self, log: LogFile | None) -> None:
        self._log, self._rest = log, ""
        if log is not None:
            self._reason_to_look.set()

    def begin(self) -> None:
        """Another turn begins; what was is over."""
        self.latest()
        self._count, self._words = 0, ""
        if self._log is None:
            self._reason_to_look.clear()

    def hear(self, log: bytes) -> None:
        """A piece of the log."""
        *lines, self._rest = (self._rest + log.decode(errors="replace")).split("\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            if words := _failure_in(line):
                self._note(words)

    def latest(self) -> str:
        """What failed last in this turn; nothing if all went well."""
        if self._log is not None:
            self.hear(self._log.news())
        return self._words

    async def run_out(self) -> str:
        """Wait until there is no hope left, and say what failed."""
        while not self._is_hopeless():
            await self._reason_to_look.wait()
            await asyncio.sleep(_LOOK)
            self.latest()
        return self._words

    def _is_hopeless(self) -> bool:
        if not self._count or self._was_served() or self._moved() > self._last + _SLACK:
            return False
        too_often = self._count >= _TRIES or limit_in(self._words) is not None
        return too_often and self._clock() - self._first >= PATIENCE

    def _was_served(self) -> bool:
        return self._worked() > self._first + _SLACK

    def _note(self, words: str) -> None:
        self._reason_to_look.set()
        self._words, self._last = words, self._clock()
        if self._count == 0 or self._was_served():
            self._count, self._first = 0, self._last
        self._count += 1


def _failure_in(line: str) -> str:
    """What a line says of a call that failed; nothing if it is about something else."""
    if found := _OPENCODE.search(line):
        return found[1] or "the call of the model failed"
    if found := _COPILOT.search(line):
        try:
            failure = msgspec.json.decode(found[1], type=_Failure)
        except msgspec.MsgspecError:
            return ""
        after = f", retry after {failure.retry_after_ms / 1000:g} s" if failure.retry_after_ms else ""
        return f"HTTP {failure.http_status}{after}" if failure.http_status else failure.failure_kind
    return ""
