"""Recognise limits of model providers: the parts that all adapters share.

How each agent reports a limit is in the `limits` module of its package.
"""

from __future__ import annotations

import re
from datetime import datetime

STATUSES = frozenset({429, 529})  # HTTP: too many requests, overloaded

_RESET = re.compile(
    r"(?:reset|retry|again|until)\D{0,40}(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d))",
    re.IGNORECASE,
)


def find_reset_time(text: str) -> datetime | None:
    """Return the date and time at which the limit ends, if the text names one."""
    found = _RESET.search(text)
    return None if found is None else datetime.fromisoformat(found[1])


def if_future(reset: datetime | None, now: datetime) -> datetime | None:
    """Return the time if it is still to come, else None."""
    return reset if reset is not None and reset > now else None
