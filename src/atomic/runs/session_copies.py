"""Compares the readable copies in a session's folder with the journal.

Every program of the user, agents included, can change the folder. Only the journal
counts: a changed copy is reported once and written again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.untrusted_files import read_bounded
from atomic.base.usage import Usage
from atomic.runs.kept_tasks import RunTasks
from atomic.runs.spending import KILLED, read_calls
from atomic.sessions.facts import CHANGED_COPIES, Facts
from atomic.sessions.history import objects_in
from atomic.sessions.store import Session

CALLS = "logs/agent-calls.jsonl"
_MOST_BYTES = 64 * 1024 * 1024  # of that log; a line has less than 1 KiB


class SessionCopies:
    """The readable copies in the folder of one run; `warn` shows a message to the user."""

    def __init__(self, session: Session, facts: Facts, tasks: RunTasks, warn: Callable[[str], object]) -> None:
        self._session = session
        self._facts = facts
        self._tasks = tasks
        self._warn = warn
        self._reported: set[str] = set()  # names of changed copies that the user knows of

    def open(self) -> None:
        """Read which copies were reported before, when the facts are open."""
        self._reported = set(self._facts.get(CHANGED_COPIES, ()))

    async def restore(self) -> None:
        """Write copies that differ from the journal again, and warn once of each."""
        await self._compare_calls()
        self._tasks.restore_copy()
        changed = [name for name in self._facts.restore_copies() if name not in self._reported]
        if not changed:
            return
        self._reported.update(changed)
        unwritten = [name for name in changed if self._facts.is_unwritten(name)]
        if unwritten:
            outcome = f"{' and '.join(unwritten)} cannot be written again"
        else:
            outcome = f"{'the copy was' if len(changed) == 1 else 'the copies were'} written again"
        self._warn(
            f"Another program changed {' and '.join(changed)} in {self._session.dir}. "
            f"Only the journal counts, so the run is not affected; {outcome}."
        )

    async def _compare_calls(self) -> None:
        """Warn once if the log of calls differs from the journal; it is not rewritten."""
        if CALLS in self._reported:
            return
        if not await asyncio.to_thread(is_log_changed, dict(self._facts), self._session.dir):
            return
        self._reported.add(CALLS)
        self._facts.note_changed(CALLS)
        self._warn(
            f"{CALLS} in {self._session.dir} has other figures than the journal: another program changed it, or the"
            " machine lost power. Only the journal counts, so the caps are not affected."
        )


def is_log_changed(facts: Mapping[str, Any], session_dir: str | os.PathLike[str]) -> bool:
    """Return whether `logs/agent-calls.jsonl` differs from the journal.

    A line is written before the journal has the end of its call. So a kill may leave
    lines of calls that have not ended, but never a call that has ended without its
    lines. A file that cannot be read, such as a pipe in its place, counts as changed.
    """
    try:
        lines = read_bounded(Path(session_dir) / CALLS, _MOST_BYTES).splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:
        return True
    logged: dict[str, Usage] = {}
    known = {call.id: call for call in read_calls(facts)}
    for line in objects_in(lines):
        id = line.get("call")
        if id not in known:
            return bool(known) and "" not in known  # lines of an older version name no call
        logged[id] = logged.get(id, Usage()) + _usage(line.get("usage"))
    ended = [call for call in known.values() if call.is_over and call.id and call.reason != KILLED]
    return any(not _is_same(logged.get(call.id), call.usage) for call in ended)


def _usage(data: Any) -> Usage:
    try:
        return msgspec.convert(data, Usage)
    except msgspec.ValidationError:
        return Usage(-1)


def _is_same(one: Usage | None, other: Usage) -> bool:
    if one is None:
        return False
    is_same_cost = (one.cost is None) == (other.cost is None) and math.isclose(
        one.cost or 0.0, other.cost or 0.0, abs_tol=1e-9
    )
    return is_same_cost and (one.input, one.output) == (other.input, other.output)
