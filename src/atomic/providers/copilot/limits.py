"""Recognise the limits of the model's provider and when they end."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from atomic.providers.copilot.messages import CallFailed, Failed
from atomic.providers.limits import STATUSES

PATIENCE = 6.0  # seconds that Copilot may retry against a limit; then the turn ends

_KINDS = frozenset({"rate_limit", "rate_limit_error", "overloaded_error", "quota", "insufficient_quota"})


def is_limit(failure: CallFailed | Failed) -> bool:
    """Return whether a limit is the reason for the failure."""
    status = failure.status_code if isinstance(failure, CallFailed) else None
    return status in STATUSES or (failure.error_type or "") in _KINDS


def reset_of(failure: CallFailed, now: datetime) -> datetime | None:
    """Return when an exhausted quota is refilled.

    Copilot reports this for GitHub only.
    """
    dates = (
        _date(quota.reset_date)
        for quota in (failure.quota_snapshots or {}).values()
        if quota.remaining_percentage <= 0 and quota.reset_date
    )
    return max((date for date in dates if date is not None and date > now), default=None)


def message_of(failure: CallFailed) -> str:
    """Return the provider's message; Copilot quotes the body of the answer."""
    text = failure.error_message or failure.error_type or f"HTTP {failure.status_code or 0:.0f}"
    try:
        return msgspec.json.decode(text, type=_Body).message
    except msgspec.MsgspecError:
        return text


class _Body(msgspec.Struct, frozen=True):
    message: str


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
