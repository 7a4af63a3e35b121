"""The session folder: what is kept of a run on the disk."""

from atomic.sessions.errors import Recovery
from atomic.sessions.journal import SqliteJournal

__all__ = ["Recovery", "SqliteJournal"]
