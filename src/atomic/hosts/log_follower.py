"""Follow the log of a run that another process works on. Whoever stops following leaves the run alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

import msgspec

from atomic.base.untrusted_files import open_regular
from atomic.runs.events import WorkflowEvent
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session

_LAST_WORDS = 5.0  # seconds: who leaves a run says so in session.json first, and then in the log
_decode = msgspec.json.Decoder(WorkflowEvent).decode


async def follow(session: Session, start: int | None = None) -> AsyncGenerator[WorkflowEvent]:
    """The events of the last time that somebody worked on it, as they come; they end where that process has gone.

    `start` is where in the log to begin instead.
    """
    with open_regular(session.logs.events) as log:
        log.seek(last_start(session.logs.events) if start is None else start)
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


def last_start(path: Path) -> int:
    """Where in a log the last run_started stands."""
    start = at = 0
    with open_regular(path) as log:
        for line in log:
            if line.startswith(b'{"type":"run_started"'):
                start = at
            at += len(line)
    return start


def _read(log: BinaryIO, rest: bytes) -> tuple[bytes, list[bytes]]:
    """The whole lines that are new, and what is not a whole line yet."""
    *lines, rest = (rest + log.read()).split(b"\n")
    return rest, lines


def _event(line: bytes) -> WorkflowEvent | None:
    try:
        return _decode(line)
    except msgspec.DecodeError:  # a line that a kill has cut, or one of a newer Atomic
        return None
