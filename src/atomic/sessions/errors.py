"""What goes wrong with a journal's file, and what is told of it.

The errors do not leave this room: they become a repair or a JournalError.
"""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of a damaged journal; `message` says it to a person."""

    kept_as: str
    message: str
    lost_rows: int = 0  # rows that were seen and could not be kept: there may have been more
    lost_bytes: int = 0  # of the log
    runs_cut: tuple[str, ...] = ()
    runs_dropped: tuple[str, ...] = ()
