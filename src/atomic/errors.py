"""The root of all errors that Atomic raises on purpose, what a person is told of one, and the nearest name."""

from __future__ import annotations

import os
from collections.abc import Iterable


class AtomicError(Exception):
    """Something that Atomic can explain; its text is meant for the person in front of the screen."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that was probably meant, whatever its case; None if nothing is near."""
    # Only a mistake needs difflib (it pulls in re); every start of the program would pay for it.
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    nearest = get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[nearest[0]] if nearest else None


def is_debugging() -> bool:
    """Whether tracebacks and logs are wanted."""
    return os.environ.get("ATOMIC_DEBUG", "") not in ("", "0")


def message_of(error: Exception) -> str:
    """What to tell the person; a mistake of ours is named, its traceback helps only those who look for it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, AtomicError | OSError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error} (ATOMIC_DEBUG=1 shows where)"
