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
# By the beginning of the unit; "m" is checked after "ms" and "milli".
_UNITS = {"ms": "milliseconds", "milli": "milliseconds", "m": "minutes", "h": "hours", "s": "seconds"}


def find_limit(text: str, *, now: datetime | None = None) -> LimitReached | None:
    """Return the limit that a text reports, with its end if the text contains it."""
    if not _LIMIT.search(text):
        return None
    now = now or datetime.now(UTC)
    reset = find_reset_time(text)
    if reset is None and (found := _IN.search(text)):
        unit = found[2].lower()
        name = next(name for start, name in _UNITS.items() if unit.startswith(start))
        reset = now + timedelta(**{name: float(found[1])})
    return LimitReached(if_future(reset, now), text)
