"""`atomic signal ID NAME [JSON]`: send a signal to a run from any terminal."""

from __future__ import annotations

import asyncio
import time

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.cli.answer import report_saved
from atomic.cli.resume import check_not_cancelled, resume_run, session_of
from atomic.cli.run_host import HostedRun, host_run, is_quiet, read_flags
from atomic.graph import RunNotFoundError, SignalError
from atomic.graph.engine.history import RunHistory, ready_signals
from atomic.runs.host import Person
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session

_OWNER_SECONDS = 1.0  # after that time we assume that the run's owner will read the signal


def signal_command(arguments: Arguments) -> int:
    """Record the signal, and continue the run here if it waits for it and no process
    owns it.
    """
    flags = read_flags(arguments)
    session = session_of(arguments)
    check_not_cancelled(session)
    name, *rest = arguments.words[1:]
    _send(session, name, _read_data(session.id, name, rest))
    owner = None if arguments.has("--no-resume") else asyncio.run(_owner_with(session, name))
    if owner is not None or arguments.has("--no-resume") or not _waits_for(session, name):
        return report_saved(session, arguments, "the signal", taken_by=owner)

    async def start(person: Person | None) -> HostedRun:
        return await resume_run(session, flags, person)

    return host_run(start, as_json=arguments.has("--json"), quiet=is_quiet(arguments))


def _read_data(id: str, name: str, words: list[str]) -> object:
    """Return the data of the signal; none without a word. Raises UsageError."""
    if not words:
        return None
    try:
        return msgspec.json.decode(words[0].encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{words[0]!r:.60} is not JSON ({error}); a text has double quotes: atomic signal {id} {name} '\"yes\"'"
        ) from error


def _send(session: Session, name: str, data: object) -> None:
    """Record a signal. Raises UsageError if the run takes none."""
    if session.record.is_conversation:
        raise UsageError(
            f"{session.id} is a conversation, which waits for no signal: atomic chat --resume {session.id}"
        )
    if not session.journal_path.is_file():  # opening it would create one
        session.require_journal()
        raise UsageError(f"Run {session.id} has not begun: atomic resume {session.id}")
    journal = session.journal()
    try:
        journal.signal(session.id, name, data)
    except SignalError as error:
        raise UsageError(str(error)) from error
    except RunNotFoundError as error:
        raise UsageError(f"Run {session.id} has not begun: atomic resume {session.id}") from error
    finally:
        journal.close()


async def _owner_with(session: Session, name: str) -> int | None:
    """Return the process that owns the run and has read the signal, or will.

    None if there is none, or if it ended before that.
    """
    owner = session.record.owner if session.is_owned else None
    deadline = time.monotonic() + _OWNER_SECONDS
    while owner is not None and _is_ready(session, name):
        if not session.is_owned:
            return None
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS / 2)
        session.reload()
    return None if owner is None else owner.pid


def _is_ready(session: Session, name: str) -> bool:
    """Return whether a step waits for the signal and has not received it."""
    journal = session.journal()
    try:
        return name in ready_signals(journal, session.id)
    finally:
        journal.close()


def _waits_for(session: Session, name: str) -> bool:
    journal = session.journal()
    try:
        return name in RunHistory(journal.history(session.id)).awaited
    finally:
        journal.close()
