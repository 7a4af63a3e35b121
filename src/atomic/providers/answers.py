"""Read a typed value from an agent's answer."""

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
# An opening bracket and a character that may follow it in JSON.
_BRACKET = re.compile(r"""\{(?=\s{0,99}["}])|\[(?=\s{0,99}["\[{\]\d\-tfn])""")
# Characters that may be parsed as JSON without success, plus twice the length of the
# text.
_WASTED = 1_000_000
_MAX_DOCUMENTS = 1000  # that are tried per text

# Keywords of a JSON Schema that contain schemas.
_SCHEMAS_BY_NAME = ("properties", "$defs")
_LISTS_OF_SCHEMAS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties")


class Wanted(Generic[ValueT]):
    """A type and its JSON Schema, always of an object: other types are wrapped into
    one.
    """

    def __init__(self, type: type[ValueT]) -> None:
        self.type = type
        schema = msgspec.json.schema(type)
        definitions = schema.pop("$defs", {})
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        inner = schema
        # A definition that no other one refers to can be moved.
        if name in definitions and f'"#/$defs/{name}"' not in json.dumps(definitions):
            inner = definitions.pop(name)
        self.wrapped = inner.get("type") != "object"
        if self.wrapped:
            inner = {"type": "object", "properties": {_WRAPPED: inner}, "required": [_WRAPPED]}
        self.schema: dict[str, Any] = {**inner, "$defs": definitions} if definitions else inner

    def read(self, data: Any) -> ValueT:
        """Convert decoded JSON to the type.

        Raise UnreadableAnswerError with the reason.
        """
        problem: Exception | None = None
        for version in self._unwrapped(data):
            try:
                return msgspec.convert(version, self.type)
            except (msgspec.ValidationError, RecursionError) as error:
                problem = problem or error
        raise UnreadableAnswerError(f"The answer does not fit its type: {problem}") from problem

    def _unwrapped(self, data: Any) -> Iterator[Any]:
        """Yield the wrapped value, then the data itself.

        The agent may leave out the wrapping, or the type may have a field of that name.
        """
        if self.wrapped and isinstance(data, Mapping) and set(cast("Mapping[str, Any]", data)) == {_WRAPPED}:
            yield cast("Mapping[str, Any]", data)[_WRAPPED]
        yield data

    def read_text(self, text: str) -> ValueT:
        """Return the value of the first JSON document in the text that fits.

        Raise UnreadableAnswerError.
        """
        problem = UnreadableAnswerError("The answer contains no JSON")
        for data in islice(documents_in(text), _MAX_DOCUMENTS):
            try:
                return self.read(data)
            except UnreadableAnswerError as error:
                problem = error
        raise problem


def map_inner_schemas(
    schema: Mapping[str, Any], change: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Return a JSON Schema with the change applied to each schema directly in it."""

    def changed(value: Any) -> Any:
        return change(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value

    result = dict(schema)
    for key, value in schema.items():
        if key in _SCHEMAS_BY_NAME and isinstance(value, Mapping):
            result[key] = {name: changed(one) for name, one in cast("Mapping[str, Any]", value).items()}
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            result[key] = [changed(one) for one in cast("list[Any]", value)]
        elif key in _SCHEMAS:
            result[key] = changed(value)
    return result


def documents_in(text: str) -> Iterator[Any]:
    """Yield the whole text if it is JSON, else every object and list in it, outer
    first.

    A long truncated answer could be parsed again from each of its brackets, so the
    number of characters that are parsed without success is limited.
    """
    decoder = json.JSONDecoder()
    at = 0
    room = _WASTED + 2 * len(text)
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
            room -= error.pos - at + error.pos // 50  # creating the error counts all lines before it
            at += 1
        except (ValueError, RecursionError):  # too deep, or a number with too many digits
            room -= _WASTED // 100
            at += 1
        else:
            yield data


def answer_tool(wanted: Wanted[ValueT], answers: list[ValueT]) -> CustomTool:
    """Return a tool for the agent's final answer; it refuses values that do not fit."""

    async def run(arguments: Mapping[str, Any]) -> str:
        answers.append(wanted.read(arguments))
        return "Thank you. The answer was taken."

    return CustomTool(
        name="answer", description="Hand in your final answer by calling this tool.", schema=wanted.schema, run=run
    )


async def ask_in_text(send: Callable[[str], AsyncIterator[AgentEvent]], wanted: Wanted[ValueT], prompt: str) -> ValueT:
    """Ask for JSON in the text, and once more if it cannot be read.

    Raise AnswerError.
    """
    schema = json.dumps(wanted.schema)
    return await ask_with_repair(
        send,
        wanted,
        f"{prompt}\n\nAnswer with JSON alone, without any other text, that fits this JSON Schema:\n{schema}",
    )


async def ask_with_repair(
    send: Callable[[str], AsyncIterator[AgentEvent]], wanted: Wanted[ValueT], prompt: str, *, repairs: int = 1
) -> ValueT:
    """Read the last message as JSON and ask again up to `repairs` times.

    Raise AnswerError.
    """
    for _ in range(repairs):
        try:
            return wanted.read_text(await _last_text(send(prompt)))
        except UnreadableAnswerError as error:
            prompt = f"{error}. Answer again, with JSON alone, that fits this JSON Schema:\n{json.dumps(wanted.schema)}"
    return wanted.read_text(await _last_text(send(prompt)))


async def _last_text(events: AsyncIterator[AgentEvent]) -> str:
    end: TurnEnded | None = None
    async for event in events:  # read all events, or the session stays in this turn
        end = event if isinstance(event, TurnEnded) else end
    if end is None:
        raise AnswerError("The turn did not end")
    if end.reason is not EndReason.DONE:
        raise AnswerError(f"The turn ended with '{end.reason}'" + (f": {end.error}" if end.error else ""))
    return end.text
