"""`atomic wake`: continue all runs that are due, for cron or a systemd timer.

A run is due when its time has come, the usage limit that parked it is over, or its
question was answered or its signal sent but the run was not continued. Each continues
in a process of its own, as with `atomic resume`. Two wakes may run at once: a run has
one owner.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode
from atomic.base.terminal import one_line
from atomic.cli import signals
from atomic.cli.streams import json_line, put, tell
from atomic.config import atomic_home
from atomic.graph import JournalError, RunNotFoundError
from atomic.graph.engine.history import RunHistory, ready_signals
from atomic.processes import execute
from atomic.sessions.errors import SessionError
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session, SessionStore, shown

_ATOMIC = (sys.executable, "-P", "-m", "atomic")
_STOPPED = (SessionStatus.PAUSED, SessionStatus.INTERRUPTED)
_LAST_CHARACTERS = 10_000  # of the output of a resume
_MOST_PARALLEL = 64


class Due(NamedTuple):
    """A run to continue, and why."""

    session: Session
    why: str


class Woken(msgspec.Struct, frozen=True):
    """What was done with a run, as `--json` prints it. `exit_code` None: nothing."""

    run: str
    workflow: str
    why: str
    said: str
    exit_code: int | None = None


def wake_command(arguments: Arguments) -> int:
    """Continue the runs that are due, and return 0 if none has failed."""
    parallel = _read_parallel(arguments.value("--parallel"))
    as_json = arguments.has("--json")
    due = find_due(SessionStore(atomic_home()))
    if not due:
        if not as_json:
            tell("no run is due")
        return ExitCode.DONE
    if arguments.has("--dry-run"):
        for session, why in due:
            _show(Woken(session.id, session.record.workflow, why, "is due"), as_json=as_json)
        return ExitCode.DONE
    return signals.run(lambda _: _wake_all(due, parallel, as_json=as_json))


def _read_parallel(text: str | None) -> int:
    if text is None:
        return 1
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= _MOST_PARALLEL:
        raise UsageError(f'--parallel cannot be "{text}": give a number of runs, 1 to {_MOST_PARALLEL}')
    return int(text)


def find_due(store: SessionStore) -> list[Due]:
    """Return the runs that are due, oldest stop first."""
    found: list[Due] = []
    for id in store.ids():
        try:
            session = store.find(id)
            why = why_due(session, time.time())
        except (SessionError, JournalError) as error:
            tell(f"{id}: {error}")
            continue
        if why:
            found.append(Due(session, why))
    return sorted(found, key=lambda due: due.session.record.updated_at)


def why_due(session: Session, now: float) -> str:
    """Return why a run can continue, or an empty text. Raises JournalError."""
    record = shown(session.record)
    if record.status not in _STOPPED or record.is_conversation:
        return ""
    if record.status is SessionStatus.PAUSED and record.wake_at is not None and record.wake_at <= now:
        return "its time has come"
    is_limited = record.reason == "provider_limit" and record.parked_until is not None
    if is_limited and (record.parked_until or 0.0) <= now:
        return "its usage limit is over"
    answers = session.inbox.answers()
    if not (answers or record.signals or record.status is SessionStatus.INTERRUPTED):
        return ""
    return _why_in_journal(session, set(answers))


def _why_in_journal(session: Session, answered: set[str]) -> str:
    if not session.journal_path.is_file():  # opening it would create one
        return ""
    journal = session.journal()
    try:
        ready = ready_signals(journal, session.id)
        if ready:
            return f'its signal "{ready[0]}" was sent'
        if answered and not answered.isdisjoint(RunHistory(journal.history(session.id)).asked):
            return "its question was answered"
    except RunNotFoundError:  # killed before it began
        return ""
    finally:
        journal.close()
    return ""


async def _wake_all(due: Sequence[Due], parallel: int, *, as_json: bool) -> int:
    free = asyncio.Semaphore(parallel)

    async def wake(one: Due) -> int:
        async with free:
            woken = await _wake(one)
            _show(woken, as_json=as_json)
            return ExitCode.DONE if woken.exit_code is None else woken.exit_code

    codes = await asyncio.gather(*map(wake, due))
    if any(code in (ExitCode.FAILED, ExitCode.USAGE) or code > ExitCode.SIGNALLED for code in codes):
        return ExitCode.FAILED
    return ExitCode.UNTRUSTED if ExitCode.UNTRUSTED in codes else ExitCode.DONE


async def _wake(due: Due) -> Woken:
    """Continue a run, if it is still due, and return what became of it."""
    session, why = due
    name = session.record.workflow
    try:
        session.reload()
        if not why_due(session, time.time()):
            return Woken(session.id, name, why, "another process has continued it")
    except AtomicError as error:
        return Woken(session.id, name, why, str(error), ExitCode.FAILED)
    said = bytearray()

    def keep_end(output: bytes) -> None:
        said.extend(output)
        del said[:-_LAST_CHARACTERS]

    done = await execute(*_ATOMIC, "resume", session.id, on_output=keep_end)
    code = done.exit_code
    if code < 0:
        code = ExitCode.SIGNALLED - code
    if code == ExitCode.OWNED:
        return Woken(session.id, name, why, "another process has continued it", code)
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2].removeprefix("atomic: ")
    if code in (ExitCode.UNTRUSTED, ExitCode.USAGE):
        return Woken(session.id, name, why, f"was left: {last}", code)
    try:
        record = shown(session.reload())
    except AtomicError as error:  # its folder was removed meanwhile; the other runs are still due
        return Woken(session.id, name, why, str(error), code or ExitCode.FAILED)
    reason = f": {record.reason}" if record.reason not in ("", "done") else ""
    return Woken(session.id, name, why, f"{record.status}{reason}", code)


def _show(woken: Woken, *, as_json: bool) -> None:
    if as_json:
        put(json_line(msgspec.to_builtins(woken)))
    else:
        put(f"{woken.run} {one_line(woken.workflow)}: {woken.why}: {one_line(woken.said)}\n")
