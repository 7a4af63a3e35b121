"""Follow the log of a run that another process owns.

Ending this does not affect the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import suppress
from pathlib import Path

import msgspec

from atomic.base.untrusted_files import open_regular
from atomic.runs.events import WorkflowEvent
from atomic.sessions.inbox import POLL_SECONDS
from atomic.sessions.store import Session

# A process that leaves a run writes session.json first, and then the last lines of the
# log.
_LAST_LINES_SECONDS = 5.0
_decode = msgspec.json.Decoder(WorkflowEvent).decode


async def follow_log(
    session: Session, start: int | None = None, *, until_end: bool = True
) -> AsyncGenerator[WorkflowEvent]:
    """Yield the events since the last start of the run, until the owner's process has
    ended.

    `start` is another offset in the log to begin at. Without `until_end` only the
    events that are there now.
    """
    with open_regular(session.logs.events) as log:
        log.seek(last_start(session.logs.events) if start is None else start)
        rest = b""
        seconds_left = _LAST_LINES_SECONDS
        while True:
            was_owned = session.is_owned
            was_left = session.record.owner is None
            *lines, rest = (rest + log.read()).split(b"\n")
            for line in lines:
                try:
                    event = _decode(line)
                except msgspec.DecodeError:  # cut by a kill, or written by a newer version
                    continue
                yield event
            if not until_end:
                return
            if lines:
                continue
            if not was_owned:
                seconds_left -= POLL_SECONDS
                if not was_left or seconds_left < 0:
                    return
            await asyncio.sleep(POLL_SECONDS)
            session.reload()


def read_earlier(session: Session) -> Generator[WorkflowEvent]:
    """Yield the events before the last start of the run: those of its earlier processes."""
    end = last_start(session.logs.events)
    with open_regular(session.logs.events) as log:
        for line in log.read(end).splitlines():
            with suppress(msgspec.DecodeError):  # cut by a kill, or written by a newer version
                yield _decode(line)


def last_start(path: Path) -> int:
    """Return the offset of the last `run_started` in a log."""
    start = 0
    offset = 0
    with open_regular(path) as log:
        for line in log:
            if line.startswith(b'{"type":"run_started"'):
                start = offset
            offset += len(line)
    return start
