"""The notes that workers leave for each other, outside of the session's folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from atomic.sessions.store import notes_of

NOTES = "notes.md"
MAX_BYTES = 256 * 1024  # kept with the session


def read_notes(session: Path) -> str:
    """Return the notes of a run; empty if there is no regular file."""
    try:
        file = os.open(notes_of(session) / NOTES, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(file, "rb") as notes:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        return notes.read(MAX_BYTES).decode("utf-8", "replace")
