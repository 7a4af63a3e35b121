"""When a provider does not serve now: what says so, until when, and how long OpenCode's own tries are waited for."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from atomic.providers.opencode import wire

PATIENCE = timedelta(seconds=10)  # one wait of OpenCode's may take that long; a longer one ends the turn

_STATUSES = frozenset({429, 529})
_WORDS = re.compile(
    r"\b(?:429|529)\b|rate[ _-]?limit|too many requests|overload|usage limit|quota|exhausted|at capacity|throttl",
    re.IGNORECASE,
)
_FIRST_WAIT, _LATE = timedelta(seconds=2), timedelta(seconds=2)  # the news of a wait may come late


def retry_is_limit(status: wire.Status, now: datetime) -> bool:
    """Whether a call is tried again because of a limit. OpenCode tells the words of the provider, but no number."""
    return bool(status.action) or bool(_WORDS.search(status.message)) or _is_told(status, now)


def next_try(status: wire.Status) -> datetime:
    return datetime.fromtimestamp(status.next / 1000, UTC)


def retry_reset(status: wire.Status, now: datetime) -> datetime | None:
    """Until when the provider does not serve; None where OpenCode only waits a while of its own accord."""
    return next_try(status) if _is_told(status, now) else None


def is_too_long(status: wire.Status, now: datetime) -> bool:
    return next_try(status) - now > PATIENCE


def ended_at_limit(problem: wire.Problem) -> bool:
    """Whether a limit is why it failed."""
    status = problem.data.status_code
    return status in _STATUSES or (status is None and bool(_WORDS.search(problem.data.message)))


def problem_reset(problem: wire.Problem, now: datetime) -> datetime | None:
    """Until when, as the provider's answer says; None if it does not, or if that has passed."""
    headers = {name.lower(): value for name, value in problem.data.response_headers.items()}
    said = _milliseconds(headers.get("retry-after-ms"), now) or _retry_after(headers.get("retry-after"), now)
    return said if said is not None and said > now else None


def _is_told(status: wire.Status, now: datetime) -> bool:
    """Whether the wait is not one of OpenCode's own: 2, 4, 8, … seconds, and up to a quarter more."""
    wait = next_try(status) - now
    own = _FIRST_WAIT * 2 ** max(status.attempt - 1, 0)
    return not own - _LATE <= wait <= own * 1.25 + _LATE


def _milliseconds(value: str | None, now: datetime) -> datetime | None:
    try:
        return None if value is None else now + timedelta(milliseconds=float(value))
    except (ValueError, OverflowError):
        return None


def _retry_after(value: str | None, now: datetime) -> datetime | None:
    if value is None:
        return None
    try:
        return now + timedelta(seconds=float(value))
    except (ValueError, OverflowError):
        pass
    try:
        return parsedate_to_datetime(value)
    except ValueError:
        return None
