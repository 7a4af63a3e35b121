"""When the provider of the model does not serve: agents say so only in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from atomic.providers.events import LimitReached

_LIMIT = re.compile(
    r"\b(?:429|529)\b|rate.?limit|too many requests|overloaded|usage limit|quota (?:exceeded|reached)|"
    r"exceeded your (?:current )?quota|insufficient_quota|resource_exhausted",
    re.IGNORECASE,
)
_IN = re.compile(
    r"(?:retry|again|reset\w*)\D{0,20}?(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec(?:onds?)?|m|min(?:utes?)?|h|hours?)\b",
    re.IGNORECASE,
)
_AT = re.compile(
    r"(?:retry|again|reset|until)\D{0,40}(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d))",
    re.IGNORECASE,
)


def limit_in(text: str, *, now: datetime | None = None) -> LimitReached | None:
    """The limit that a text speaks of, with its end where the text says it."""
    if not _LIMIT.search(text):
        return None
    return LimitReached(_reset(text, now or datetime.now(UTC)), text)


def _reset(text: str, now: datetime) -> datetime | None:
    said = None
    if found := _AT.search(text):
        said = datetime.fromisoformat(found[1])
    elif found := _IN.search(text):
        said = now + _duration(float(found[1]), found[2].lower())
    return said if said is not None and said > now else None


def _duration(number: float, unit: str) -> timedelta:
    if unit.startswith(("ms", "milli")):
        return timedelta(milliseconds=number)
    if unit.startswith("h"):
        return timedelta(hours=number)
    return timedelta(minutes=number) if unit.startswith("m") else timedelta(seconds=number)
