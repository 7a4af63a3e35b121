"""`atomic attach ID`: watch a run that another process works on. Leaving it leaves the run alone."""

from __future__ import annotations

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli import signals
from atomic.cli.errors import CliError
from atomic.cli.output import Output
from atomic.cli.progress import view_for
from atomic.cli.resume import find_session
from atomic.cli.signals import Stop
from atomic.hosts import follow
from atomic.runs.events import RunEnded
from atomic.sessions.store import Session


def attach_command(arguments: Arguments) -> int:
    """Show what the run's log says until the run ends; its exit code."""
    id = arguments.words[0]
    as_json = arguments.has("--json")
    session = find_session(id)
    if session.record.is_conversation:
        raise CliError(f"{session.id} is a conversation, no run: atomic chat --resume {session.id}", ExitCode.FAILED)
    if not session.logs.events.is_file():
        raise CliError(f"{session.id} has no log to follow", ExitCode.FAILED)
    return signals.run(lambda stop: _follow(session, stop, as_json=as_json))


async def _follow(session: Session, stop: Stop, *, as_json: bool) -> int:
    out = Output()
    view = view_for(out, as_json=as_json)
    code = ExitCode.FAILED
    try:
        async for event in follow(session):
            view.show(event)
            if isinstance(event, RunEnded):
                code = event.exit_code
                break
        else:
            out.tell(f"its process has ended; continue it with: atomic resume {session.id}")
    finally:
        view.close()
        await out.drain()
    return code
