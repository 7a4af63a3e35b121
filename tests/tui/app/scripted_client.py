"""An engine of the tests: it keeps what the screen sends, and says what the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from textual.pilot import Pilot

from atomic.chat.protocol import Activity, ChatEvent, Intent, RunEnded, RunKind, RunStarted, Submit
from atomic.config import Settings
from atomic.providers.events import TextDelta
from atomic.tui.app import AtomicApp

LIMIT = 60.0  # seconds; it only ends a hang

IntentT = TypeVar("IntentT")


class ScriptedClient:
    """A link without an engine."""

    def __init__(self) -> None:
        self.sent: list[Intent] = []
        self.is_closed = False
        self._waiting: asyncio.Queue[ChatEvent | None] = asyncio.Queue()
        self.on_send: Callable[[Intent], None] | None = None

    def send(self, intent: Intent) -> None:
        self.sent.append(intent)
        if self.on_send is not None:
            self.on_send(intent)

    async def events(self) -> AsyncIterator[ChatEvent]:
        while (news := await self._waiting.get()) is not None:
            yield news

    async def close(self) -> None:
        self.is_closed = True
        self._waiting.put_nowait(None)

    def emit(self, *news: ChatEvent) -> None:
        for one in news:
            self._waiting.put_nowait(one)

    def all(self, kind: type[IntentT]) -> list[IntentT]:
        """All intents of a kind that were sent."""
        return [intent for intent in self.sent if isinstance(intent, kind)]

    def last(self, kind: type[IntentT]) -> IntentT:
        return self.all(kind)[-1]

    # what an engine says about the run that was sent last

    def begin(self, kind: RunKind = RunKind.TURN) -> str:
        """Take up the last text; the run's id."""
        sent = self.last(Submit)
        self.emit(RunStarted(run=sent.run, kind=kind, prompt=sent.text))
        return sent.run

    def answer(self, run: str, text: str) -> None:
        self.emit(Activity(run=run, event=TextDelta(text)))

    def end(self, run: str, status: str = "done") -> None:
        self.emit(RunEnded(run=run, status=status))


def app_with(
    client: ScriptedClient, *, home: Path | None = None, settings: Settings | None = None, **options: Any
) -> AtomicApp:
    return AtomicApp(client, settings=settings or Settings(), home=home, project="/project", **options)


async def until(pilot: Pilot[Any], condition: Callable[[], Any], what: str = "") -> None:
    """Wait until something is so, not longer than the limit."""
    deadline = asyncio.get_running_loop().time() + LIMIT
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what or "it did not become so in time"
        await pilot.pause(0.01)


def shown(app: AtomicApp) -> str:
    """The picture as text."""
    height = app.size.height
    lines = app.screen._compositor.render_strips(app.size)  # pyright: ignore[reportPrivateUsage]
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in lines[:height])
