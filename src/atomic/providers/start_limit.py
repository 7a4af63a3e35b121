"""Limit how long an agent's program may take from its launch to the first prompt."""

from __future__ import annotations

import os

from atomic.base.errors import AtomicError
from atomic.providers.errors import ProgramFailedError

VARIABLE = "ATOMIC_START_SECONDS"
DEFAULT = 30.0


class NotStartedError(AtomicError):
    """A session or a run did not start, or not within the limit."""


def start_seconds() -> float:
    """Return the limit in seconds; the default if the variable is not a number above 0."""
    try:
        seconds = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        return DEFAULT
    return seconds if 0 < seconds < float("inf") else DEFAULT


def not_started(name: str, provider: str, seconds: float) -> ProgramFailedError:
    """Return the error for a program that exceeded the limit."""
    return ProgramFailedError(
        f"{name} did not start within {seconds:g} s",
        provider=provider,
        remedy=f"run it by hand to see what it waits for, or give it more time: {VARIABLE}=120",
    )
