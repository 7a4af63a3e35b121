"""A client of the real engine process, for tests without a screen."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, TypeVar

from atomic.chat.protocol import (
    Activity,
    Answer,
    ChatEvent,
    ChatNotice,
    Intent,
    Interrupt,
    Picked,
    QuestionOpened,
    RunEnded,
    RunStarted,
    Shell,
    StatusChanged,
    Submit,
    decode_event,
    encode,
)
from atomic.providers import AgentEvent, TextDelta
from atomic.tui.state.model import Block, Screen
from atomic.tui.state.store import Store
from tests.support.user import User
from tests.support.waits import HANG as LIMIT

EventT = TypeVar("EventT", bound=ChatEvent)


class EngineClient:
    """The screen's end of the socket. `received` has every event, oldest first."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: Any) -> None:
        self.process = process
        self.received: list[ChatEvent] = []
        self._reader = reader
        self._writer = writer
        self._changed = asyncio.Event()
        self._numbers = count(1)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                self.received.append(decode_event(line))
                self._changed.set()
        self._changed.set()

    def send(self, intent: Intent) -> None:
        self._writer.write(encode(intent))

    def screen_state(self) -> Screen:
        """Return the screen state after all received events."""
        store = Store()
        for event in self.received:
            store.apply(event, time.time())
        return store.screen

    def blocks(self) -> list[Block]:
        """Return the blocks of the transcript."""
        return self.screen_state().blocks

    def submit(self, text: str) -> str:
        """Send a text and return the id of its run."""
        run = f"r{next(self._numbers)}"
        self.send(Submit(run=run, text=text))
        return run

    def shell(self, command: str) -> str:
        run = f"r{next(self._numbers)}"
        self.send(Shell(run=run, command=command))
        return run

    async def until(self, fits: Callable[[ChatEvent], bool], *, limit: float = LIMIT, after: int = 0) -> ChatEvent:
        """Wait for the first event from index `after` on for which `fits` is true."""
        at = after
        try:
            async with asyncio.timeout(limit):
                while True:
                    fitting = [event for event in self.received[at:] if fits(event)]
                    if fitting:
                        return fitting[0]
                    at = len(self.received)
                    if self._reading.done():
                        raise AssertionError(f"the engine has ended: {self.received[-5:]}")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            last = str(self.received[-8:])[-2000:]
            raise AssertionError(f"no such event within {limit} s; the last events: {last}") from None

    async def until_type(self, type: type[EventT], *, limit: float = LIMIT, after: int = 0, **facts: Any) -> EventT:
        def fits(event: ChatEvent) -> bool:
            return isinstance(event, type) and all(getattr(event, name) == fact for name, fact in facts.items())

        found = await self.until(fits, limit=limit, after=after)
        assert isinstance(found, type)
        return found

    async def ended(self, run: str, *, limit: float = LIMIT) -> RunEnded:
        return await self.until_type(RunEnded, run=run, limit=limit)

    async def ask(self, text: str, *, limit: float = LIMIT) -> RunEnded:
        """Send a text and wait until its run ends."""
        return await self.ended(self.submit(text), limit=limit)

    async def ready(self, *, limit: float = LIMIT) -> StatusChanged:
        return await self.until_type(StatusChanged, ready=True, limit=limit)

    async def question(self, *, text: str | None = None) -> QuestionOpened:
        found = await self.until(
            lambda event: isinstance(event, QuestionOpened) and text in (None, event.question.text)
        )
        assert isinstance(found, QuestionOpened)
        return found

    def answer(self, question: str, *answers: str) -> None:
        self.send(Answer(question=question, answers=answers or None))

    def choose(self, request: str, value: str | None) -> None:
        self.send(Picked(request=request, value=value))

    def stop(self, run: str, *, force: bool = False) -> None:
        self.send(Interrupt(run=run, force=force))

    def events_of(self, run: str) -> list[ChatEvent]:
        return [event for event in self.received if getattr(event, "run", None) == run]

    def agent_events(self, run: str) -> list[AgentEvent]:
        return [event.event for event in self.events_of(run) if isinstance(event, Activity)]

    def text(self, run: str) -> str:
        """Return the text of the agent, without its sub-agents."""
        return "".join(
            event.text for event in self.agent_events(run) if isinstance(event, TextDelta) and not event.agent
        )

    def notices(self, run: str | None = None) -> str:
        return "\n".join(
            event.text for event in self.received if isinstance(event, ChatNotice) and run in (None, event.run)
        )

    def started(self, run: str) -> RunStarted:
        (started,) = [event for event in self.events_of(run) if isinstance(event, RunStarted)]
        return started

    def check_ends(self) -> None:
        """Check that each started run has ended once, with no event after its end."""
        for run in {event.run for event in self.received if isinstance(event, RunStarted)}:
            events = self.events_of(run)
            assert isinstance(events[-1], RunEnded), events[-1]
            assert [type(event) for event in events].count(RunEnded) == 1

    async def hang_up(self) -> None:
        """Close the socket, as a killed screen does."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def gone(self, *, limit: float = LIMIT) -> float:
        """Wait until the engine has ended and return the seconds it took."""
        began = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - began > limit:
                raise AssertionError(f"the engine is still running after {limit} s")
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@asynccontextmanager
async def engine(user: User, *flags: str) -> AsyncGenerator[EngineClient]:
    """Start an engine for a user in their project, and end it on exit."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "atomic.chat", "--fd", str(theirs.fileno()), *flags],
        env=user.env,
        cwd=user.project,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    ours.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=ours, limit=2**28)
    client = EngineClient(process, reader, writer)
    try:
        yield client
    finally:
        with suppress(ConnectionError):
            await client.hang_up()
        with suppress(AssertionError):
            await client.gone()
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
