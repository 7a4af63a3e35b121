"""Play one turn of a script to one client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Kind, pieces_of
from atomic.testing.model_server.http import Response
from atomic.testing.model_server.script import (
    Big,
    Call,
    Cut,
    Drip,
    Fail,
    HalfCharacter,
    Pause,
    Say,
    Stall,
    Stop,
    Think,
    Tokens,
    Word,
)

_BIG_PIECE = 64 * 1024
_LINE = "x" * 79 + "\n"


class StallError(Exception):
    """Send nothing more, and keep the connection open."""


class Player:
    """Sends an answer word by word, or collects it and sends it whole.

    The first word with content opens the answer; until then it can still become an
    error. Consecutive texts are one text, even with a pause between them.
    """

    def __init__(self, encoder: Encoder, response: Response, *, stream: bool) -> None:
        self._encoder = encoder
        self._response = response
        self._stream = stream
        self._kind: Kind | None = None  # of the current text

    async def play(self, words: Sequence[Word]) -> None:
        """Play a turn.

        Raise CutError if the connection must be closed, StallError if it must stay
        open.
        """
        for word in words:
            if isinstance(word, Fail):
                await self._fail(word)
                return
            await self._play(word)
        await self._end()

    async def _play(self, word: Word) -> None:
        match word:
            case Say(text):
                await self._text(Kind.TEXT, pieces_of(text))
            case Think(text):
                await self._text(Kind.THINKING, pieces_of(text))
            case Big(size):
                await self._text(Kind.TEXT, _big(size))
            case Drip(prefix, times, every):
                for number in range(1, times + 1):
                    await self._text(Kind.TEXT, [f"{prefix}{number} "])
                    await asyncio.sleep(every)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Call(tool, input, id):
                assert isinstance(tool, str), "the playbook chooses one name"
                await self._close_text()
                await self._send(self._encoder.call(CallPart(id, tool, input)))
            case HalfCharacter(character, cut):
                self._response.split(character, cut=cut)
                await self._text(Kind.TEXT, [character])
            case Cut(after):
                self._response.cut(after)
            case Stall():
                await self._stall()
            case Tokens() | Stop() | Fail():
                pass  # handled by the encoder and by `play`
            case _:
                assert_never(word)

    async def _text(self, kind: Kind, pieces: Iterable[str]) -> None:
        if self._kind is not kind:
            await self._close_text()
            await self._send(self._encoder.open(kind))
            self._kind = kind
        for piece in pieces:
            await self._send(self._encoder.add(piece))

    async def _close_text(self) -> None:
        if self._kind is not None:
            self._kind = None
            await self._send(self._encoder.close())

    async def _stall(self) -> None:
        if self._stream:
            await self._open()
        else:
            await self._response.begin_whole()
        raise StallError

    async def _fail(self, fail: Fail) -> None:
        if not self._response.is_open:
            await self._response.whole(fail.status, self._encoder.error(fail), fail.headers)
            return
        await self._send(self._encoder.failure(fail))
        await self._response.end_events()

    async def _end(self) -> None:
        await self._close_text()
        if not self._stream:
            await self._response.whole(200, self._encoder.whole())
            return
        await self._send(self._encoder.end())
        await self._response.end_events()

    async def _open(self) -> None:
        if self._stream and not self._response.is_open:
            await self._response.begin_events({})
            await self._send(self._encoder.begin())

    async def _send(self, events: Iterable[Event]) -> None:
        await self._open()
        if self._stream:
            for event in events:
                await self._response.event(event.name, event.data)


def _big(size: int) -> Iterator[str]:
    text = _LINE * (_BIG_PIECE // len(_LINE) + 1)
    for start in range(0, size, _BIG_PIECE):
        yield text[: min(_BIG_PIECE, size - start)]
