"""`atomic stop ID`: what Ctrl+C once does, from another terminal."""

from __future__ import annotations

import time

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli.errors import CliError
from atomic.cli.resume import find_session
from atomic.cli.streams import tell
from atomic.hosts import ask_to_stop
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal, cancel_unowned
from atomic.sessions.store import Session, now, shown

PATIENCE = 30.0  # seconds
_POLL_SECONDS = 0.05
_OVER = (SessionStatus.COMPLETED, SessionStatus.CHAT, SessionStatus.CANCELLED)


def stop_command(arguments: Arguments) -> int:
    """Ask the run's owner to stop, and wait for it."""
    id = arguments.words[0]
    cancel = arguments.has("--cancel")
    session = find_session(id)
    if session.record.is_conversation:
        tell(f"{session.id} is a conversation: it ends with its screen")
        return ExitCode.DONE
    if session.is_owned:
        _ask(session, cancel=cancel)
    elif cancel and not _is_over(session):
        cancel_unowned(session)  # first: it has the last word
        session.save(status=SessionStatus.CANCELLED, reason="cancelled", owner=None, ended_at=now(), questions=())
    else:
        tell(f"{session.id} is not running: it is {shown(session.record).status}")
        return ExitCode.DONE
    tell(f"{session.id} is {shown(session.record).status}{_way_on(session)}")
    return ExitCode.DONE


def _is_over(session: Session) -> bool:
    believe_journal(session)
    return session.record.status in _OVER


def _ask(session: Session, *, cancel: bool) -> None:
    owner = session.record.owner
    assert owner is not None
    ask_to_stop(session, cancel=cancel)
    deadline = time.monotonic() + PATIENCE
    while session.is_owned:
        if time.monotonic() > deadline:
            raise CliError(f"process {owner.pid} did not stop {session.id} within {PATIENCE:g} s")
        time.sleep(_POLL_SECONDS)
        session.reload()


def _way_on(session: Session) -> str:
    return "" if session.record.status in _OVER else f" (to continue: atomic resume {session.id})"
