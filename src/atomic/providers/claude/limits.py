"""When the provider does not serve: what says so, and until when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from atomic.providers.claude.wire import ApiRetry, RateLimitInfo, Result

PATIENCE = timedelta(seconds=45)  # for the program's own tries against a limit; then the turn ends, and says so

_STATUSES = frozenset({429, 529})
_ERRORS = frozenset({"rate_limit", "overloaded", "usage_limit_reached"})
_ISO = re.compile(
    r"(?:reset|retry|again|until)\D{0,40}(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d))"
)
_EPOCH = re.compile(r"(?:reset|limit reached)\D{0,40}\b(\d{10})\b", re.IGNORECASE)


def is_limit(retry: ApiRetry) -> bool:
    """Whether a call is tried again because of a limit."""
    return retry.error_status in _STATUSES or retry.error in _ERRORS


def ended_at_limit(result: Result) -> bool:
    """Whether a limit is why it failed."""
    return result.is_error and (result.api_error_status in _STATUSES or result.api_error in _ERRORS)


def next_try(retry: ApiRetry, now: datetime) -> datetime:
    return now + timedelta(milliseconds=retry.retry_delay_ms)


def reset_of(info: RateLimitInfo | None, text: str, now: datetime) -> datetime | None:
    """Until when: as the program says, else as its text says; None if nobody says, or if that has passed."""
    said = None
    if info is not None and info.resets_at is not None:
        said = datetime.fromtimestamp(info.resets_at, UTC)
    elif found := _ISO.search(text):
        said = datetime.fromisoformat(found[1])
    elif found := _EPOCH.search(text):
        said = datetime.fromtimestamp(int(found[1]), UTC)
    return said if said is not None and said > now else None
