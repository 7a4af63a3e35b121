"""The order of the first lines of a run of Ralph.

The first line names the place of the work and the checks that prove it. Both are known
when the first step has run the checks. Earlier output waits for this line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from atomic.config import atomic_home
from atomic.config.ralph_flags import NAME
from atomic.graph import JournalError
from atomic.runs.events import NodeEnded, NodeStarted, RunStarted, TasksChanged, Warning, WorkflowEvent
from atomic.sessions.errors import SessionError

LineT = TypeVar("LineT")


class Opening(Generic[LineT]):
    """Holds lines back until the line that comes first is known."""

    def __init__(self, make: Callable[[str], LineT]) -> None:
        """`make` returns a text as a line."""
        self._make = make
        self._held: list[LineT] | None = None
        self._run = ""
        self._first = ""  # the first line, if it was printed before its message has come

    def order(self, event: WorkflowEvent, lines: Sequence[LineT]) -> list[LineT]:
        """Return the lines to print now; `lines` are those of the event."""
        if isinstance(event, RunStarted) and event.workflow == NAME:
            self._held = []
            self._run = event.run
        if self._held is None:
            is_printed = isinstance(event, Warning) and event.notice and event.text == self._first
            return [] if is_printed else [*lines]
        match event:
            case Warning(notice=True):
                return [*lines, *self.rest()]
            case (
                RunStarted()
                | Warning()
                | TasksChanged()
                | NodeStarted(node="prepare")
                | NodeEnded(node="prepare", status="completed")
            ):
                self._held += lines
                return []
            case _:
                self._first = _read_opening(self._run)
                first = [self._make(self._first)] if self._first else []
                return [*first, *self.rest(), *lines]

    def rest(self) -> list[LineT]:
        """Return the lines that wait, and hold no further ones."""
        held, self._held = self._held, None
        return held or []


def _read_opening(run: str) -> str:
    """Return the first line of a run from its facts: it works in the checkout, or is resumed."""
    from atomic.ralph.opening import read_opening
    from atomic.sessions.facts import read_facts
    from atomic.sessions.store import SessionStore

    try:
        session = SessionStore(atomic_home()).find(run)
        return read_opening(read_facts(session.journal_path, session.id))
    except (SessionError, JournalError):  # the run itself reports a damaged folder
        return ""
