"""The errors of this room."""

from __future__ import annotations

from atomic.base.errors import AtomicError


class WorkspaceError(AtomicError):
    """A workspace cannot be made or used."""


class ViewError(WorkspaceError):
    """A private view cannot be made here, with the reason."""

    def __init__(self, root: str, reason: str) -> None:
        self.reason = reason
        super().__init__(f"A private view of {root} cannot be made: {reason}")
