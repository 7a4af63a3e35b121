"""Join consecutive pieces of one text that wait together, so that a burst costs the state one change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from atomic.chat.protocol import Activity, ChatEvent, ShellOutput, WorkflowActivity
from atomic.providers.events import TextDelta, ThinkingDelta, ToolOutput
from atomic.runs.events import AgentActivity

_Delta = TextDelta | ThinkingDelta | ToolOutput
_Key = tuple[object, ...]


def merged(waiting: Iterable[ChatEvent]) -> Iterator[ChatEvent]:
    """Yield the same news in the same order; neighbours that continue the same text are joined."""
    key: _Key | None = None
    held: list[ChatEvent] = []
    for news in waiting:
        own = _key(news)
        if held and (own is None or own != key):
            yield _join(held)
            held.clear()
        held.append(news)
        key = own
    if held:
        yield _join(held)


def _key(news: ChatEvent) -> _Key | None:
    """Return what a piece of text belongs to; None if the news are not a piece of text."""
    match news:
        case Activity(run=run, event=TextDelta() | ThinkingDelta() | ToolOutput() as delta):
            return run, *_stream(delta)
        case WorkflowActivity(
            run=run, event=AgentActivity(event=TextDelta() | ThinkingDelta() | ToolOutput() as delta) as activity
        ):
            return run, activity.node, activity.task, activity.role, *_stream(delta)
        case ShellOutput(run=run):
            return run, ShellOutput
        case _:
            return None


def _stream(delta: _Delta) -> _Key:
    return type(delta), delta.agent, delta.id if isinstance(delta, ToolOutput) else None


def _join(held: list[ChatEvent]) -> ChatEvent:
    first = held[0]
    if len(held) == 1:
        return first
    text = "".join(_text(news) for news in held)
    match first:
        case Activity(event=delta):
            return msgspec.structs.replace(first, event=msgspec.structs.replace(delta, text=text))
        case WorkflowActivity(event=AgentActivity(event=delta) as activity):
            activity = msgspec.structs.replace(activity, event=msgspec.structs.replace(delta, text=text))
            return msgspec.structs.replace(first, event=activity)
        case _:
            return msgspec.structs.replace(first, text=text)


def _text(news: ChatEvent) -> str:
    match news:
        case Activity(event=TextDelta() | ThinkingDelta() | ToolOutput() as delta):
            return delta.text
        case WorkflowActivity(event=AgentActivity(event=TextDelta() | ThinkingDelta() | ToolOutput() as delta)):
            return delta.text
        case ShellOutput(text=text):
            return text
        case _:
            return ""
