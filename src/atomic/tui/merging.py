"""Pieces of one text that wait together become one piece: a burst costs the state one change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from atomic.providers.events import TextDelta, ThinkingDelta, ToolOutput
from atomic.tui.protocol import Activity, News, ShellSaid

_Key = tuple[object, ...]


def merged(waiting: Iterable[News]) -> Iterator[News]:
    """The same news in the same order; neighbours that go on with the same text are one."""
    key: _Key | None = None
    held: list[News] = []
    for news in waiting:
        own = _key(news)
        if held and (own is None or own != key):
            yield _join(held)
            held.clear()
        held.append(news)
        key = own
    if held:
        yield _join(held)


def _key(news: News) -> _Key | None:
    """What a piece of text belongs to; None for what is no piece."""
    match news:
        case Activity(run=run, event=TextDelta(agent=agent) | ThinkingDelta(agent=agent)):
            return run, type(news.event), agent
        case Activity(run=run, event=ToolOutput(id=id, agent=agent)):
            return run, ToolOutput, agent, id
        case ShellSaid(run=run):
            return run, ShellSaid
        case _:
            return None


def _join(held: list[News]) -> News:
    first = held[0]
    if len(held) == 1:
        return first
    text = "".join(_text(news) for news in held)
    if isinstance(first, Activity):
        return msgspec.structs.replace(first, event=msgspec.structs.replace(first.event, text=text))
    return msgspec.structs.replace(first, text=text)


def _text(news: News) -> str:
    if isinstance(news, Activity) and isinstance(news.event, TextDelta | ThinkingDelta | ToolOutput):
        return news.event.text
    return news.text if isinstance(news, ShellSaid) else ""
