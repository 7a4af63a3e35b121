"""Recognise limits of the model's provider, and give up on endless retries.

Agents report limits only as text. OpenCode retries a failed model call endlessly, and
reports that only in its log.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from atomic.providers.events import LimitReached
from atomic.providers.limits import find_reset_time, if_future

_LIMIT = re.compile(
    r"\b(?:429|529)\b|rate.?limit|too many requests|overloaded|usage limit|quota (?:exceeded|reached)|"
    r"exceeded your (?:current )?quota|insufficient_quota|resource_exhausted",
    re.IGNORECASE,
)
_IN = re.compile(
    r"(?:retry|again|reset\w*)\D{0,20}?(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec(?:onds?)?|m|min(?:utes?)?|h|hours?)\b",
    re.IGNORECASE,
)
PATIENCE = 30.0  # seconds from the first failure without a success
_SLACK = 1.0  # seconds; log and protocol are not in order
_MAX_FAILURES = 4  # before, only a limit counts: a model may take long
_INTERVAL = 0.5  # seconds
# OpenCode generates titles with small calls, which do not matter.
_FAILED_CALL = re.compile(r'message="stream error".* small=false .*?error\.error="?(?:AI_\w+: )?(.*?)"?\s*$')


def find_limit(text: str, *, now: datetime | None = None) -> LimitReached | None:
    """Return the limit that a text reports, with its end if the text contains it."""
    if not _LIMIT.search(text):
        return None
    now = now or datetime.now(UTC)
    reset = find_reset_time(text)
    if reset is None and (found := _IN.search(text)):
        reset = now + _duration(float(found[1]), found[2].lower())
    return LimitReached(if_future(reset, now), text)


def _duration(number: float, unit: str) -> timedelta:
    if unit.startswith(("ms", "milli")):
        return timedelta(milliseconds=number)
    if unit.startswith("h"):
        return timedelta(hours=number)
    return timedelta(minutes=number) if unit.startswith("m") else timedelta(seconds=number)


class RetryMonitor:
    """Reads the log of the program.

    `worked` returns the time of the last progress, `moved` of the last update.
    """

    def __init__(self, *, worked: Callable[[], float], moved: Callable[[], float]) -> None:
        self._worked = worked
        self._moved = moved
        self._clock = asyncio.get_running_loop().time
        self._failed = asyncio.Event()
        self._rest = ""  # an incomplete line
        self.begin()

    def begin(self) -> None:
        """Start a new turn and forget earlier failures."""
        self._failed.clear()
        self._count = 0
        self._message = ""  # the last failure
        self._first = 0.0  # times of the first and last failure
        self._last = 0.0

    def receive(self, log: bytes) -> None:
        """Read a piece of the log."""
        *lines, self._rest = (self._rest + log.decode(errors="replace")).split("\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            if found := _FAILED_CALL.search(line):
                self._note(found[1] or "the model call failed")

    async def wait_until_hopeless(self) -> str:
        """Wait until more retries are useless, and return the failure."""
        while not self._is_hopeless():
            await self._failed.wait()
            await asyncio.sleep(_INTERVAL)
        return self._message

    def _is_hopeless(self) -> bool:
        if not self._count or self._was_served() or self._moved() > self._last + _SLACK:
            return False
        too_often = self._count >= _MAX_FAILURES or find_limit(self._message) is not None
        return too_often and self._clock() - self._first >= PATIENCE

    def _was_served(self) -> bool:
        return self._worked() > self._first + _SLACK

    def _note(self, message: str) -> None:
        self._failed.set()
        self._message = message
        self._last = self._clock()
        if self._count == 0 or self._was_served():
            self._count = 0
            self._first = self._last
        self._count += 1
