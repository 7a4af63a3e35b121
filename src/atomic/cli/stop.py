"""`atomic stop ID`: pause or cancel a run from another terminal."""

from __future__ import annotations

import time
from contextlib import suppress

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.untrusted_files import read_bounded_text
from atomic.cli.errors import CliError
from atomic.cli.last_run import require_running_run
from atomic.cli.parked import park_left
from atomic.cli.resume import require_session, resume_run
from atomic.cli.run_branches import require_work
from atomic.cli.run_host import HostedRun, host_run
from atomic.cli.sessions import MAX_REPORT_BYTES, cancelled_report
from atomic.cli.streams import tell
from atomic.runs.ended_run import is_of_function
from atomic.runs.host import Person
from atomic.runs.results import REPORT
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal, cancel_unowned
from atomic.sessions.store import Session, now, shown
from atomic.wiring import RunFlags

STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_OVER = (SessionStatus.COMPLETED, SessionStatus.CHAT, SessionStatus.CANCELLED)


def stop_command(arguments: Arguments) -> int:
    """Ask the run's owner to stop, and wait until it has stopped."""
    cancel = arguments.has("--cancel")
    session = require_session(arguments.words[0]) if arguments.words else require_running_run()
    if session.record.is_conversation:
        tell(f"{session.id} is a conversation: it ends with its screen")
        return ExitCode.DONE
    was_owned = session.is_owned
    if was_owned:
        _stop_owner(session, cancel=cancel)
    if cancel and not _cannot_stop(session) and is_of_function(session):
        return _cancel_function(session)
    if was_owned:
        if cancel:
            _park_work(session)
        return _report(session)
    if not cancel or _cannot_stop(session):
        tell(f"{session.id} is not running: it is {shown(session.record).status}")
        return ExitCode.DONE
    cancel_unowned(session)  # the journal first: it has precedence over session.json
    session.save(status=SessionStatus.CANCELLED, reason="cancelled", owner=None, ended_at=now(), questions=())
    with suppress(OSError):  # there is no report, or it is not a regular file
        report = read_bounded_text(session.dir / REPORT, MAX_REPORT_BYTES)
        session.write(REPORT, cancelled_report(report))
    _park_work(session)
    return _report(session)


def _park_work(session: Session) -> None:
    """Park what workers have left of a run that was cancelled, and say how to get it."""
    believe_journal(session)
    if session.record.status is not SessionStatus.CANCELLED:
        return
    try:
        work = require_work(session.id, "cancel")
    except CliError:  # it has no branch, or its repository is gone
        return
    if park_left(work):
        tell(f"what its workers have left is parked: atomic salvage {work.short}")


def _cancel_function(session: Session) -> int:
    """Cancel a run of a function here: the function runs up to its last finished step,
    and what it has done is compensated.
    """

    async def start(person: Person | None) -> HostedRun:
        return await resume_run(session, RunFlags(), person, cancel=True)

    code = host_run(start, as_json=False)
    session.reload()
    _park_work(session)
    return _report(session) if session.record.status is SessionStatus.CANCELLED else code


def _report(session: Session) -> int:
    next_step = "" if session.record.status in _OVER else f" (to continue: atomic resume {session.id})"
    tell(f"{session.id} is {shown(session.record).status}{next_step}")
    return ExitCode.DONE


def _cannot_stop(session: Session) -> bool:
    believe_journal(session)
    return session.record.status in _OVER


def _stop_owner(session: Session, *, cancel: bool) -> None:
    owner = session.record.owner
    assert owner is not None
    session.ask_to_stop(cancel=cancel)
    deadline = time.monotonic() + STOP_SECONDS
    while session.is_owned:
        if time.monotonic() > deadline:
            raise CliError(f"process {owner.pid} did not stop {session.id} within {STOP_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
        session.reload()
