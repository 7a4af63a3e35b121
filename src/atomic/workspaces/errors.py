"""The error of this room."""

from __future__ import annotations

from atomic.base.errors import AtomicError


class WorkspaceError(AtomicError):
    """A workspace cannot be made or used."""
