"""The base of Atomic's errors, exit codes, messages for users, and hints for misspelt
names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of `atomic`."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    OWNED = 3  # another process runs it
    UNTRUSTED = 4
    WAITING = 5  # blocked, or a question has no answer
    CAP_REACHED = 6
    LIMITED = 7  # the agent is rate-limited
    SIGNALLED = 128  # plus the number of the signal
    HUNG_UP = SIGNALLED + 1  # SIGHUP
    INTERRUPTED = SIGNALLED + 2  # SIGINT, Ctrl+C
    TERMINATED = SIGNALLED + 15  # SIGTERM


class AtomicError(Exception):
    """An error that Atomic can explain; its text is a message for the user."""


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL; a real-time signal has none."""
    import signal  # as for `closest`

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, ignoring case.

    None if no name is near.
    """
    # Imported here because it imports re, which every start of the program would pay
    # for.
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for candidate in known:
        by_folded.setdefault(candidate.casefold(), candidate)
    nearest = get_close_matches(name.casefold(), by_folded, n=1)
    return by_folded[nearest[0]] if nearest else None


def suggest(name: str, known: Iterable[str], *, otherwise: str = "", prefix: str = "") -> str:
    """Return `did you mean "x"?` for the nearest known name, or `otherwise` if none is
    near.

    `prefix` is put before the known name: `/` for a command, `agents.` for a key below
    it.
    """
    nearest = closest(name, known)
    return otherwise if nearest is None else f'did you mean "{prefix}{nearest}"?'


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", prefix: str = "") -> str:
    """Return the hint of `suggest` in parentheses, to follow a message.

    Empty without a hint.
    """
    hint = suggest(name, known, otherwise=otherwise, prefix=prefix)
    return f" ({hint})" if hint else ""


def is_debugging() -> bool:
    """Return whether ATOMIC_DEBUG asks for tracebacks and logs."""
    return os.environ.get("ATOMIC_DEBUG", "") not in ("", "0")


def message_of(error: Exception) -> str:
    """Return the message for the user.

    An internal error is named without its traceback.
    """
    if isinstance(error, AtomicError | OSError):
        return describe(error)
    return f"internal error: {describe(error)} (ATOMIC_DEBUG=1 shows where)"


def describe(error: BaseException) -> str:
    """Return the message of an error, with its type if the message is not for users."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, AtomicError | OSError):
        return str(error)
    return f"{type(error).__name__}: {error}"
