"""The root of all errors that Atomic raises on purpose, and the nearest name for those about a wrong one."""

from __future__ import annotations

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
