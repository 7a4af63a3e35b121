"""Recognise limits of the model's provider, which agents report only as text."""

from __future__ import annotations

import re
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


def find_limit(text: str, *, now: datetime | None = None) -> LimitReached | None:
    """Return the limit that a text reports, with its end if the text contains it."""
    if not _LIMIT.search(text):
        return None
    return LimitReached(_reset(text, now or datetime.now(UTC)), text)


def _reset(text: str, now: datetime) -> datetime | None:
    reset = find_reset_time(text)
    if reset is None and (found := _IN.search(text)):
        reset = now + _duration(float(found[1]), found[2].lower())
    return if_future(reset, now)


def _duration(number: float, unit: str) -> timedelta:
    if unit.startswith(("ms", "milli")):
        return timedelta(milliseconds=number)
    if unit.startswith("h"):
        return timedelta(hours=number)
    return timedelta(minutes=number) if unit.startswith("m") else timedelta(seconds=number)
