"""A typed value out of an agent's answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, cast

import msgspec

from atomic.providers.base import CustomTool, ValueT
from atomic.providers.errors import AnswerError, UnreadableAnswerError
from atomic.providers.events import AgentEvent, EndReason, TurnEnded

_WRAPPED = "value"
_BRACKET = re.compile(r"""\{(?=\s{0,99}["}])|\[(?=\s{0,99}["\[{\]\d\-tfn])""")  # with what may follow it in JSON
_IN_VAIN = 1_000_000  # characters that may be read as JSON that turns out to be none, besides twice the text
_MANY = 1000  # documents in a text of which none fits


class Wanted(Generic[ValueT]):
    """A type as a JSON Schema of an object, and the way back; what is no object is wrapped into one."""

    def __init__(self, type: type[ValueT]) -> None:
        self.type = type
        schema = msgspec.json.schema(type)
        definitions = schema.pop("$defs", {})
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        inner = definitions.pop(name) if name in definitions and _used_once(definitions, name) else schema
        self.wrapped = inner.get("type") != "object"
        if self.wrapped:
            inner = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
        self.schema: dict[str, Any] = {**inner, "$defs": definitions} if definitions else inner

    def read(self, data: Any) -> ValueT:
        """The value. Raises UnreadableAnswerError that says what is wrong and where."""
        problem: Exception | None = None
        for version in self._unwrapped(data):
            try:
                return msgspec.convert(version, self.type)
            except (msgspec.ValidationError, RecursionError) as error:
                problem = problem or error
        raise UnreadableAnswerError(f"The answer is not what was asked for: {problem}") from problem

    def _unwrapped(self, data: Any) -> Iterator[Any]:
        """What was wrapped, then the data itself: the wrapping may be missing, or be a field of the type's own."""
        if self.wrapped and isinstance(data, Mapping) and set(cast("Mapping[str, Any]", data)) == {_WRAPPED}:
            yield cast("Mapping[str, Any]", data)[_WRAPPED]
        yield data

    def read_text(self, text: str) -> ValueT:
        """The value from the first JSON in a text that fits. Raises UnreadableAnswerError."""
        problem = UnreadableAnswerError("The answer has no JSON in it")
        for data in islice(documents_in(text), _MANY):
            try:
                return self.read(data)
            except UnreadableAnswerError as error:
                problem = error
        raise problem


def _used_once(definitions: Mapping[str, Any], name: str) -> bool:
    """Whether nothing in the definitions points to that one: else it must stay where it can be found."""
    return f'"#/$defs/{name}"' not in json.dumps(definitions)


def documents_in(text: str) -> Iterator[Any]:
    """All of the text, if it is JSON, else all objects and lists in it, the outer ones first.

    A long answer that was cut off could be begun at each of its brackets and would be read again each time: what has
    been read in vain is bounded.
    """
    decoder, at, room = json.JSONDecoder(), 0, _IN_VAIN + 2 * len(text)
    try:
        yield decoder.decode(text)
    except (ValueError, RecursionError):
        pass
    else:
        return
    while room > 0 and (start := _BRACKET.search(text, at)):
        at = start.start()
        try:
            data, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            room -= error.pos - at + error.pos // 50  # the error has counted the lines before it, which is quicker
            at += 1
        except (ValueError, RecursionError):  # it is nested too deep, or has a number of thousands of digits
            room -= _IN_VAIN // 100
            at += 1
        else:
            yield data


def answer_tool(wanted: Wanted[ValueT], answers: list[ValueT]) -> CustomTool:
    """A tool by which an agent hands in its answer; what does not fit is refused, with the reason."""

    async def run(arguments: Mapping[str, Any]) -> str:
        answers.append(wanted.read(arguments))
        return "Thank you. The answer was taken."

    return CustomTool(
        name="answer", description="Hand in your final answer by calling this tool.", schema=wanted.schema, run=run
    )


async def ask_in_text(send: Callable[[str], AsyncIterator[AgentEvent]], wanted: Wanted[ValueT], prompt: str) -> ValueT:
    """Ask for JSON in the text, and once more if that cannot be read. Raises AnswerError."""
    schema = json.dumps(wanted.schema)
    return await ask_with_repair(
        send,
        wanted,
        f"{prompt}\n\nAnswer with JSON alone, without any other text, that fits this JSON Schema:\n{schema}",
    )


async def ask_with_repair(
    send: Callable[[str], AsyncIterator[AgentEvent]], wanted: Wanted[ValueT], prompt: str, *, repairs: int = 1
) -> ValueT:
    """Read the last message as JSON; one that does not fit is told why, `repairs` times. Raises AnswerError."""
    for _ in range(repairs):
        try:
            return wanted.read_text(await _last_text(send(prompt)))
        except UnreadableAnswerError as error:
            prompt = f"{error}. Answer again, with JSON alone, that fits this JSON Schema:\n{json.dumps(wanted.schema)}"
    return wanted.read_text(await _last_text(send(prompt)))


async def _last_text(events: AsyncIterator[AgentEvent]) -> str:
    end: TurnEnded | None = None
    async for event in events:  # to its end, or the session would still be in this turn
        end = event if isinstance(event, TurnEnded) else end
    if end is None:
        raise AnswerError("The turn did not end")
    if end.reason is not EndReason.DONE:
        raise AnswerError(f"The turn ended with '{end.reason}'" + (f": {end.error}" if end.error else ""))
    return end.text
