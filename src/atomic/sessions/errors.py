"""Errors of sessions and journals.

DamagedError and BrokenChainError do not leave this package: they lead to a repair or to
a JournalError.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.base.errors import AtomicError, ExitCode
from atomic.graph.engine.errors import JournalError


class DamagedError(Exception):
    """The file differs from what was written to it."""

    def __init__(self, reason: str, *, lost_bytes: int = 0, lost_commits: int = 0) -> None:
        self.reason = reason
        self.lost_bytes = lost_bytes
        self.lost_commits = lost_commits
        super().__init__(reason)


class BrokenChainError(Exception):
    """The row at `seq` differs from the one that was written."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        super().__init__(f"row {seq} is damaged")


class Recovery(msgspec.Struct, frozen=True):
    """How a damaged journal was recovered; `message` is for the user."""

    kept_as: str
    message: str
    lost_rows: int = 0  # rows that were found and could not be kept; there may have been more
    lost_bytes: int = 0  # of the log
    runs_cut: tuple[str, ...] = ()
    runs_dropped: tuple[str, ...] = ()


class FactsLostError(JournalError):
    """Facts of a run in its journal are damaged, and exist nowhere else."""

    def __init__(self, path: str, reason: str, run: str, *, kept_as: str) -> None:
        self.run = run
        super().__init__(
            f'Run {run} cannot continue: its journal "{path}" is damaged ({reason}), and the checks, the caps, what was'
            " spent and the list of your uncommitted files cannot be read from it; put back a backup of the journal, or"
            " start a new run",
            kept_as=kept_as,
        )


class SessionError(AtomicError):
    """A session cannot be found or used."""

    exit_code: int = ExitCode.USAGE


class NoSessionIdError(SessionError):
    """A text cannot be the id of a session."""

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(
            f'"{given}" is not the id of a session: give its uuid or the first 8 characters or more of it '
            "(atomic sessions lists them)"
        )


class UnknownSessionError(SessionError):
    """No session has that id."""

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(f'No session "{given}" (atomic sessions lists them)')


class AmbiguousSessionError(SessionError):
    """Several sessions have this beginning of an id."""

    def __init__(self, given: str, ids: Sequence[str]) -> None:
        self.given = given
        self.ids = tuple(ids)
        super().__init__(f'"{given}" is the beginning of {len(ids)} sessions: {", ".join(ids[:5])}; give more of it')


class SessionDamagedError(SessionError):
    """The `session.json` of a session cannot be read."""

    exit_code = ExitCode.FAILED


class RunNotStartedError(SessionError):
    """The first files of a run could not be written, for example to a full disk."""

    def __init__(self, why: str) -> None:
        advice = "make room there, or correct its permissions, or set ATOMIC_HOME to another folder, then try again"
        super().__init__(f"Nothing was started: {why} ({advice})")


class JournalLostError(SessionError):
    """A run has started, and its journal is missing or replaced."""

    exit_code = ExitCode.FAILED

    def __init__(self, run: str, what: str) -> None:
        super().__init__(
            f"Run {run} cannot continue: {what}, so its finished steps and its cost are unknown; "
            "put the file back from a backup, or start a new run"
        )
