"""`atomic attach ID`: watch a run that another process works on. Leaving it leaves the run alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

import msgspec

from atomic.cli import signals
from atomic.cli.errors import FAILED, CliError
from atomic.cli.output import Output
from atomic.cli.progress import view_for
from atomic.cli.resume import find_session
from atomic.cli.signals import Stop
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session
from atomic.workflows.events import RunEnded, WorkflowEvent

_LAST_WORDS = 5.0  # seconds: who leaves a run says so in session.json first, and then in the log


def attach_command(id: str, *, as_json: bool) -> int:
    """Show what the run's log says until the run ends; its exit code."""
    session = find_session(id)
    if not session.logs.events.exists():
        raise CliError(f"{session.id} has no log to follow", FAILED)
    return signals.run(lambda stop: _follow(session, stop, as_json=as_json))


async def _follow(session: Session, stop: Stop, *, as_json: bool) -> int:
    out = Output()
    view = view_for(out, as_json=as_json)
    code = FAILED
    try:
        async for event in _events(session):
            view.show(event)
            if isinstance(event, RunEnded):
                code = event.exit_code
                break
        else:
            out.tell(f"the process that worked on it is gone; go on with: atomic resume {session.id}")
    finally:
        view.close()
        await out.drain()
    return code


async def _events(session: Session) -> AsyncGenerator[WorkflowEvent]:
    """The events of the last time that somebody worked on it, as they come; they end where that process has gone."""
    with session.logs.events.open("rb") as log:
        log.seek(_last_start(session.logs.events))
        rest, patience = b"", _LAST_WORDS
        while True:
            was_owned, was_left = session.is_owned, session.record.owner is None
            rest, lines = _read(log, rest)
            for line in lines:
                if (event := _event(line)) is not None:
                    yield event
            if lines:
                continue
            if not was_owned:
                patience -= POLL_SECONDS
                if not was_left or patience < 0:
                    return
            await asyncio.sleep(POLL_SECONDS)
            session.reload()


def _read(log: BinaryIO, rest: bytes) -> tuple[bytes, list[bytes]]:
    """The whole lines that are new, and what is not a whole line yet."""
    *lines, rest = (rest + log.read()).split(b"\n")
    return rest, lines


def _last_start(path: Path) -> int:
    """Where the last run_started stands."""
    start = at = 0
    with path.open("rb") as log:
        for line in log:
            if line.startswith(b'{"type":"run_started"'):
                start = at
            at += len(line)
    return start


def _event(line: bytes) -> WorkflowEvent | None:
    try:
        return msgspec.json.decode(line, type=WorkflowEvent)
    except msgspec.DecodeError:  # a line that a kill has cut, or one of a newer Atomic
        return None
