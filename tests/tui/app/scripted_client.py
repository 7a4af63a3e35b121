"""A chat client without an engine. The test reads the intents and emits the events."""

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
from tests.support.waits import HANG as LIMIT

IntentT = TypeVar("IntentT")


class ScriptedClient:
    """A `ChatClient` that records intents in `sent` and yields emitted events."""

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
        while (event := await self._waiting.get()) is not None:
            yield event

    async def close(self) -> None:
        self.is_closed = True
        self._waiting.put_nowait(None)

    def emit(self, *events: ChatEvent) -> None:
        for event in events:
            self._waiting.put_nowait(event)

    def all(self, kind: type[IntentT]) -> list[IntentT]:
        """Return all sent intents of one type."""
        return [intent for intent in self.sent if isinstance(intent, kind)]

    def last(self, kind: type[IntentT]) -> IntentT:
        return self.all(kind)[-1]

    def begin(self, kind: RunKind = RunKind.TURN) -> str:
        """Start the run of the last submitted text and return its id."""
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
    """Wait until `condition` is true; fail after `LIMIT` seconds."""
    deadline = asyncio.get_running_loop().time() + LIMIT
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what or "the condition was not met in time"
        await pilot.pause(0.01)


def shown(app: AtomicApp) -> str:
    """Return the visible screen as text."""
    height = app.size.height
    lines = app.screen._compositor.render_strips(app.size)  # pyright: ignore[reportPrivateUsage]
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in lines[:height])
