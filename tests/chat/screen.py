"""A screen without a screen: the real engine in its process, intents and news over a socket pair."""

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
from tests.cli.command import User

LIMIT = 60.0  # seconds for anything
EventT = TypeVar("EventT", bound=ChatEvent)


class EngineScreen:
    """The other end of the wire: `heard` is all that came."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: Any) -> None:
        self.process = process
        self.heard: list[ChatEvent] = []
        self._reader, self._writer = reader, writer
        self._changed = asyncio.Event()
        self._numbers = count(1)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                self.heard.append(decode_event(line))
                self._changed.set()
        self._changed.set()

    def send(self, intent: Intent) -> None:
        self._writer.write(encode(intent))

    def folded(self) -> Screen:
        """What the screen would know by now."""
        store = Store()
        for news in self.heard:
            store.apply(news, time.time())
        return store.screen

    def blocks(self) -> list[Block]:
        """What the transcript would show."""
        return self.folded().blocks

    def submit(self, text: str) -> str:
        """Send a text; the id of its run."""
        run = f"r{next(self._numbers)}"
        self.send(Submit(run=run, text=text))
        return run

    def shell(self, command: str) -> str:
        run = f"r{next(self._numbers)}"
        self.send(Shell(run=run, command=command))
        return run

    async def until(self, fits: Callable[[ChatEvent], bool], *, limit: float = LIMIT, after: int = 0) -> ChatEvent:
        """The first news behind a place that fit."""
        at = after
        try:
            async with asyncio.timeout(limit):
                while True:
                    fitting = [news for news in self.heard[at:] if fits(news)]
                    if fitting:
                        return fitting[0]
                    at = len(self.heard)
                    if self._reading.done():
                        raise AssertionError(f"the engine has gone: {self.heard[-5:]}")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {limit} s; the last were {str(self.heard[-8:])[-2000:]}") from None

    async def until_type(self, type: type[EventT], *, limit: float = LIMIT, after: int = 0, **facts: Any) -> EventT:
        def fits(news: ChatEvent) -> bool:
            return isinstance(news, type) and all(getattr(news, name) == fact for name, fact in facts.items())

        found = await self.until(fits, limit=limit, after=after)
        assert isinstance(found, type)
        return found

    async def ended(self, run: str, *, limit: float = LIMIT) -> RunEnded:
        return await self.until_type(RunEnded, run=run, limit=limit)

    async def ask(self, text: str, *, limit: float = LIMIT) -> RunEnded:
        """Send a text and wait for its end."""
        return await self.ended(self.submit(text), limit=limit)

    async def ready(self, *, limit: float = LIMIT) -> StatusChanged:
        return await self.until_type(StatusChanged, ready=True, limit=limit)

    async def question(self, *, text: str | None = None) -> QuestionOpened:
        found = await self.until(lambda news: isinstance(news, QuestionOpened) and text in (None, news.question.text))
        assert isinstance(found, QuestionOpened)
        return found

    def answer(self, question: str, *answers: str) -> None:
        self.send(Answer(question=question, answers=answers or None))

    def choose(self, request: str, value: str | None) -> None:
        self.send(Picked(request=request, value=value))

    def stop(self, run: str, *, force: bool = False) -> None:
        self.send(Interrupt(run=run, force=force))

    # what was heard -------------------------------------------------------------------------------------------

    def of(self, run: str) -> list[ChatEvent]:
        return [news for news in self.heard if getattr(news, "run", None) == run]

    def events(self, run: str) -> list[AgentEvent]:
        return [news.event for news in self.of(run) if isinstance(news, Activity)]

    def text(self, run: str) -> str:
        """What the agent itself said."""
        return "".join(event.text for event in self.events(run) if isinstance(event, TextDelta) and not event.agent)

    def said(self, run: str | None = None) -> str:
        return "\n".join(news.text for news in self.heard if isinstance(news, ChatNotice) and run in (None, news.run))

    def started(self, run: str) -> RunStarted:
        (started,) = [news for news in self.of(run) if isinstance(news, RunStarted)]
        return started

    def check_ends(self) -> None:
        """Each run that was started has ended once, and nothing of it came behind."""
        for run in {news.run for news in self.heard if isinstance(news, RunStarted)}:
            news = self.of(run)
            assert isinstance(news[-1], RunEnded), news[-1]
            assert [type(one) for one in news].count(RunEnded) == 1

    async def hang_up(self) -> None:
        """Go, as a screen does that was killed."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def gone(self, *, limit: float = LIMIT) -> float:
        """Wait for the engine's end; the seconds that took."""
        began = time.monotonic()
        while self.process.poll() is None:
            if time.monotonic() - began > limit:
                raise AssertionError(f"the engine is still there after {limit} s")
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@asynccontextmanager
async def engine(user: User, *flags: str) -> AsyncGenerator[EngineScreen]:
    """The engine of a user, in their project; leaving kills it."""
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
    screen = EngineScreen(process, reader, writer)
    try:
        yield screen
    finally:
        with suppress(ConnectionError):
            await screen.hang_up()
        with suppress(AssertionError):
            await screen.gone()
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
