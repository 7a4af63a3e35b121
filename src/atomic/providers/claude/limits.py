"""Recognise the limits of Claude Code's provider and when they end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from atomic.providers.claude.messages import ApiRetry, RateLimitInfo, Result
from atomic.providers.limits import STATUSES, find_reset_time, if_future

# How long the program may retry against a limit by itself; then the turn ends at the
# limit.
PATIENCE = timedelta(seconds=45)

_ERRORS = frozenset({"rate_limit", "overloaded", "usage_limit_reached"})
_EPOCH = re.compile(r"(?:reset|limit reached)\D{0,40}\b(\d{10})\b", re.IGNORECASE)


def is_limit(retry: ApiRetry) -> bool:
    """Return whether a call is retried because of a limit."""
    return retry.error_status in STATUSES or retry.error in _ERRORS


def ended_at_limit(result: Result) -> bool:
    """Return whether a limit is the reason for the failure."""
    return result.is_error and (result.api_error_status in STATUSES or result.api_error in _ERRORS)


def next_try(retry: ApiRetry, now: datetime) -> datetime:
    return now + timedelta(milliseconds=retry.retry_delay_ms)


def reset_of(info: RateLimitInfo | None, text: str, now: datetime) -> datetime | None:
    """Return when the limit ends: from the program's data, else from its text.

    None if neither contains a time, or if it has passed.
    """
    if info is not None and info.resets_at is not None:
        reset = datetime.fromtimestamp(info.resets_at, UTC)
    else:
        reset = find_reset_time(text)
        if reset is None and (found := _EPOCH.search(text)):
            reset = datetime.fromtimestamp(int(found[1]), UTC)
    return if_future(reset, now)
