"""`atomic attach ID`: watch a run that another process owns.

Leaving does not affect the run.
"""

from __future__ import annotations

import time

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli import signals
from atomic.cli.errors import CliError
from atomic.cli.output import Output
from atomic.cli.progress import view_for
from atomic.cli.resume import require_session
from atomic.runs.endings import Stop, stopped
from atomic.runs.events import RunEnded
from atomic.runs.log_follower import follow_log
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session


def attach_command(arguments: Arguments) -> int:
    """Show the events of a run until it ends, and return its exit code."""
    session = require_session(arguments.words[0])
    if session.record.is_conversation:
        raise CliError(f"{session.id} is a conversation, no run: atomic chat --resume {session.id}", ExitCode.FAILED)
    if not session.logs.events.is_file():
        raise CliError(f"{session.id} has no log to follow", ExitCode.FAILED)
    return signals.run(lambda stop: _follow(session, as_json=arguments.has("--json")))


async def _follow(session: Session, *, as_json: bool) -> int:
    out = Output()
    view = view_for(out, as_json=as_json)
    # A run that is not running is cancelled without an event in its log.
    is_cancelled = session.record.status is SessionStatus.CANCELLED
    ended: RunEnded | None = None
    try:
        async for event in follow_log(session):
            if isinstance(event, RunEnded):
                ended = event
                break
            view.show(event)
        if is_cancelled and (ended is None or ended.status != SessionStatus.CANCELLED):
            ended = _cancelled(session)
        if ended is None:
            out.tell(f"its process has ended; continue it with: atomic resume {session.id}")
            return ExitCode.FAILED
        view.show(ended)
    finally:
        view.close()
        await out.drain()
    return ended.exit_code


def _cancelled(session: Session) -> RunEnded:
    ending = stopped(Stop.CANCEL, session.id)
    return RunEnded(run=session.id, seq=0, time=time.time(), **msgspec.to_builtins(ending))
