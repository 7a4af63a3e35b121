"""`atomic attach ID` and `atomic logs ID`: show the events of a run.

Leaving does not affect the run.
"""

from __future__ import annotations

import time

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli import signals
from atomic.cli.errors import CliError
from atomic.cli.last_run import require_logged_run, require_running_run
from atomic.cli.output import Output
from atomic.cli.progress import view_for
from atomic.cli.resume import require_session
from atomic.cli.streams import STDERR, STDOUT
from atomic.runs.endings import Stop, stopped
from atomic.runs.events import RunEnded
from atomic.runs.log_follower import follow_log, read_earlier
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session


def attach_command(arguments: Arguments) -> int:
    """Show the events of a run until it ends, and return its exit code."""
    session = _with_log(require_session(arguments.words[0]) if arguments.words else require_running_run())
    return signals.run(lambda stop: _follow(session, as_json=arguments.has("--json")))


def logs_command(arguments: Arguments) -> int:
    """Print the events of a run up to now, or with `--follow` until it ends.

    Events of its earlier processes come first. They go to standard output, because they
    are the output of `atomic logs`; `run` and `attach` print a result there.
    """
    session = _with_log(require_session(arguments.words[0]) if arguments.words else require_logged_run())
    as_json = arguments.has("--json")
    if arguments.has("--follow"):
        return signals.run(lambda stop: _follow(session, as_json=as_json, whole=True))
    return signals.run(lambda stop: _print(session, as_json=as_json))


def _with_log(session: Session) -> Session:
    """Return a session whose log can be shown. Raises CliError."""
    if session.record.is_conversation:
        raise CliError(f"{session.id} is a conversation, no run: atomic chat --resume {session.id}", ExitCode.FAILED)
    if not session.logs.events.is_file():
        raise CliError(f"{session.id} has no log to follow", ExitCode.FAILED)
    return session


async def _print(session: Session, *, as_json: bool) -> int:
    out = Output(progress=STDOUT)
    view = view_for(out, as_json=as_json)
    try:
        for event in read_earlier(session):
            view.show(event)
        async for event in follow_log(session, until_end=False):
            view.show(event)
    finally:
        view.close()
        await out.drain()
    return ExitCode.DONE


async def _follow(session: Session, *, as_json: bool, whole: bool = False) -> int:
    out = Output(progress=STDOUT if whole else STDERR)
    view = view_for(out, as_json=as_json)
    # A run that is not running is cancelled without an event in its log.
    is_cancelled = session.record.status is SessionStatus.CANCELLED
    ended: RunEnded | None = None
    try:
        if whole:
            for event in read_earlier(session):
                view.show(event)
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
