"""`atomic stop ID`: pause or cancel a run from another terminal."""

from __future__ import annotations

import time
from contextlib import suppress

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.untrusted_files import read_bounded_text
from atomic.cli.errors import CliError
from atomic.cli.progress import REPORT
from atomic.cli.resume import require_session
from atomic.cli.sessions import MAX_REPORT_BYTES, cancelled_report
from atomic.cli.streams import tell
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal, cancel_unowned
from atomic.sessions.store import Session, now, shown

STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05
_OVER = (SessionStatus.COMPLETED, SessionStatus.CHAT, SessionStatus.CANCELLED)


def stop_command(arguments: Arguments) -> int:
    """Ask the run's owner to stop, and wait until it has stopped."""
    cancel = arguments.has("--cancel")
    session = require_session(arguments.words[0])
    if session.record.is_conversation:
        tell(f"{session.id} is a conversation: it ends with its screen")
        return ExitCode.DONE
    if session.is_owned:
        _stop_owner(session, cancel=cancel)
    elif cancel and not _is_over(session):
        cancel_unowned(session)  # the journal first: it has precedence over session.json
        session.save(status=SessionStatus.CANCELLED, reason="cancelled", owner=None, ended_at=now(), questions=())
        with suppress(OSError):  # there is no report, or it is not a regular file
            report = read_bounded_text(session.dir / REPORT, MAX_REPORT_BYTES)
            session.write(REPORT, cancelled_report(report))
    else:
        tell(f"{session.id} is not running: it is {shown(session.record).status}")
        return ExitCode.DONE
    next_step = "" if session.record.status in _OVER else f" (to continue: atomic resume {session.id})"
    tell(f"{session.id} is {shown(session.record).status}{next_step}")
    return ExitCode.DONE


def _is_over(session: Session) -> bool:
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
