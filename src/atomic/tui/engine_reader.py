"""Read the engine's events and apply them in short slices, so that keys are handled in
between.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from atomic.chat.protocol import Activity, ChatEvent, Left, ShellOutput, WorkflowActivity
from atomic.providers.events import TextDelta, ThinkingDelta, ToolOutput
from atomic.runs.events import AgentActivity

if TYPE_CHECKING:
    from atomic.chat.client import ChatClient
    from atomic.tui.watchdog import Watchdog

SLICE = 0.005  # seconds of work before waiting keys are handled


class EngineReader:
    """Receives events from the engine and passes them to `apply`."""

    def __init__(
        self,
        link: ChatClient,
        apply: Callable[[ChatEvent], None],
        call_later: Callable[[Callable[[], None]], object],
        watchdog: Watchdog,
    ) -> None:
        """`call_later` queues a call after pending messages, such as keys."""
        self._link = link
        self._apply = apply
        self._call_later = call_later
        self._watchdog = watchdog
        self._pending: deque[ChatEvent] = deque()
        self._is_scheduled = False
        self.has_left = asyncio.Event()  # the engine has sent its final message

    async def run(self) -> None:
        """Receive events until the link is closed."""
        async for event in self._link.events():
            self._pending.append(event)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._call_later(self._apply_slice)
            if isinstance(event, Left):
                self.has_left.set()

    def _apply_slice(self) -> None:
        self._watchdog.wake()
        waiting = self._pending
        self._pending = deque()
        end = time.perf_counter() + SLICE
        rest = merged(waiting)
        for event in rest:
            self._apply(event)
            if time.perf_counter() > end:
                self._pending.extendleft(reversed(list(rest)))
                break
        self._is_scheduled = bool(self._pending)
        if self._is_scheduled:
            self._call_later(self._apply_slice)


def merged(waiting: Iterable[ChatEvent]) -> Iterator[ChatEvent]:
    """Yield the same events in the same order.

    Neighbours that continue the same text are joined.
    """
    stream: object = None  # what the held events belong to
    held: list[ChatEvent] = []
    texts: list[str] = []
    for event in waiting:
        own, text = _piece(event)
        if held and (own is None or own != stream):
            yield _joined(held, texts)
            held.clear()
            texts.clear()
        held.append(event)
        texts.append(text)
        stream = own
    if held:
        yield _joined(held, texts)


def _piece(event: ChatEvent) -> tuple[object, str]:
    """Return what a piece of text belongs to, and the text.

    None and an empty string if the event is not a piece of text.
    """
    match event:
        case Activity(run=run, event=TextDelta() | ThinkingDelta() | ToolOutput() as delta):
            source = (run,)
        case WorkflowActivity(
            run=run, event=AgentActivity(event=TextDelta() | ThinkingDelta() | ToolOutput() as delta) as activity
        ):
            source = (run, activity.node, activity.task, activity.role)
        case ShellOutput(run=run, text=text):
            return (run, ShellOutput), text
        case _:
            return None, ""
    tool = delta.id if isinstance(delta, ToolOutput) else None
    return (source, type(delta), delta.agent, tool), delta.text


def _joined(held: Sequence[ChatEvent], texts: Sequence[str]) -> ChatEvent:
    first = held[0]
    if len(held) == 1:
        return first
    text = "".join(texts)
    match first:
        case Activity(event=delta):
            return msgspec.structs.replace(first, event=msgspec.structs.replace(delta, text=text))
        case WorkflowActivity(event=AgentActivity(event=delta) as activity):
            activity = msgspec.structs.replace(activity, event=msgspec.structs.replace(delta, text=text))
            return msgspec.structs.replace(first, event=activity)
        case _:
            return msgspec.structs.replace(first, text=text)
