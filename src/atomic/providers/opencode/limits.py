"""Recognise the limits of model providers, when they end, and how long OpenCode may
retry.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from atomic.providers.limits import STATUSES, if_future
from atomic.providers.opencode import messages

PATIENCE = timedelta(seconds=10)  # for one wait of OpenCode; a longer one ends the turn

_LIMIT = re.compile(
    r"\b(?:429|529)\b|rate[ _-]?limit|too many requests|overload|usage limit|quota|exhausted|at capacity|throttl",
    re.IGNORECASE,
)
_FIRST_WAIT = timedelta(seconds=2)
_DELAY = timedelta(seconds=2)  # the event of a wait may arrive late


def retry_is_limit(status: messages.Status, now: datetime) -> bool:
    """Return whether a call is retried because of a limit.

    OpenCode reports the provider's message, but no status code.
    """
    return bool(status.action) or bool(_LIMIT.search(status.message)) or _is_prescribed(status, now)


def next_try(status: messages.Status) -> datetime:
    return datetime.fromtimestamp(status.next / 1000, UTC)


def retry_reset(status: messages.Status, now: datetime) -> datetime | None:
    """Return when the limit ends.

    None if OpenCode only waits for a delay of its own.
    """
    return next_try(status) if _is_prescribed(status, now) else None


def is_too_long(status: messages.Status, now: datetime) -> bool:
    return next_try(status) - now > PATIENCE


def ended_at_limit(problem: messages.Problem) -> bool:
    """Return whether a limit is the reason for the failure."""
    status = problem.data.status_code
    return status in STATUSES or (status is None and bool(_LIMIT.search(problem.data.message)))


def problem_reset(problem: messages.Problem, now: datetime) -> datetime | None:
    """Return when the limit ends, from the headers of the provider's answer.

    None if they contain no time, or if it has passed.
    """
    headers = {name.lower(): value for name, value in problem.data.response_headers.items()}
    reset = _after(headers.get("retry-after-ms"), timedelta(milliseconds=1), now)
    reset = reset or _after(headers.get("retry-after"), timedelta(seconds=1), now)
    return if_future(reset, now)


def _is_prescribed(status: messages.Status, now: datetime) -> bool:
    """Return whether the provider set the wait: it is not OpenCode's own 2, 4, 8, …
    seconds.

    OpenCode may add up to a quarter to its own waits.
    """
    wait = next_try(status) - now
    own = _FIRST_WAIT * 2 ** max(status.attempt - 1, 0)
    return not own - _DELAY <= wait <= own * 1.25 + _DELAY


def _after(value: str | None, unit: timedelta, now: datetime) -> datetime | None:
    """Return the time in a header: a number of units from now, or a date."""
    if value is None:
        return None
    with suppress(ValueError, OverflowError):
        return now + float(value) * unit
    with suppress(ValueError):
        return parsedate_to_datetime(value)
    return None
