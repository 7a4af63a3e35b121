"""What goes wrong with a session's folder, and what is told of it.

DamagedError and BrokenChainError do not leave this room: they become a repair or a JournalError.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.errors import AtomicError
from atomic.graph.errors import JournalError


class DamagedError(Exception):
    """The file does not hold what was written to it."""

    def __init__(self, reason: str, *, lost_bytes: int = 0, lost_commits: int = 0) -> None:
        self.reason, self.lost_bytes, self.lost_commits = reason, lost_bytes, lost_commits
        super().__init__(reason)


class BrokenChainError(Exception):
    """The row at `seq` is not the one that was written there."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        super().__init__(f"row {seq} is damaged")


class Recovery(msgspec.Struct, frozen=True):
    """What became of a damaged journal; `message` says it to a person."""

    kept_as: str
    message: str
    lost_rows: int = 0  # rows that were seen and could not be kept: there may have been more
    lost_bytes: int = 0  # of the log
    runs_cut: tuple[str, ...] = ()
    runs_dropped: tuple[str, ...] = ()


class FactsLostError(JournalError):
    """Values that a run has kept in its journal are damaged, and nothing else has them."""

    def __init__(self, path: str, reason: str, run: str, *, kept_as: str) -> None:
        self.run = run
        super().__init__(
            f'Run {run} cannot continue: its journal "{path}" is damaged ({reason}), and the checks, the caps, what was'
            " spent and the list of your uncommitted files cannot be read from it; put back a backup of the journal, or"
            " start a new run",
            kept_as=kept_as,
        )


class SessionError(AtomicError):
    """A session cannot be had. `exit_code` is that of a command line which asked for it."""

    exit_code = 2


class NoSessionIdError(SessionError):
    """What was given cannot be the id of a session."""

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
    """Several sessions begin with it."""

    def __init__(self, given: str, ids: Sequence[str]) -> None:
        self.given, self.ids = given, tuple(ids)
        super().__init__(f'"{given}" is the beginning of {len(ids)} sessions: {", ".join(ids[:5])}; give more of it')


class SessionDamagedError(SessionError):
    """The `session.json` of a session cannot be read."""

    exit_code = 1


class JournalLostError(SessionError):
    """A run has begun, and its journal is not there any more."""

    exit_code = 1

    def __init__(self, run: str, what: str) -> None:
        super().__init__(
            f"Run {run} cannot continue: {what}, and nothing else says which steps are finished and what was spent; "
            "put the file back from a backup, or start a new run"
        )
