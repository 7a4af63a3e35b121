"""Test typed Python functions as tools: their types are the schema, the agent sees their errors."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest

from atomic.providers import CustomTool, ProviderError, tool
from atomic.providers.tools import as_tools

if TYPE_CHECKING:
    from decimal import Decimal as Unknown


class Item(msgspec.Struct):
    name: str
    count: int = 1


def add(a: int, b: Annotated[int, msgspec.Meta(ge=0)] = 1) -> int:
    """Add two numbers."""
    return a + b


async def describe(item: Item, colour: Literal["red", "blue"] = "red", tags: list[str] = []) -> dict[str, Any]:  # noqa: B006
    return {"item": item, "colour": colour, "tags": tags}


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def more(self, by: int) -> str:
        self.count += by
        return str(self.count)

    async def __call__(self, by: int) -> str:
        await asyncio.sleep(0)
        return self.more(by)


async def test_types_become_the_schema_and_the_docstring_the_description() -> None:
    made = tool(add)
    assert (made.name, made.description) == ("add", "Add two numbers.")
    assert made.schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer", "minimum": 0, "default": 1}}
    assert made.schema["required"] == ["a"]
    assert await made.run({"a": 1}) == "2"
    assert await made.run(MappingProxyType({"a": 1, "b": 5})) == "6"


async def test_a_tool_may_take_structs_and_choices_and_its_result_becomes_json() -> None:
    made = tool(describe, name="show", description="Shows an item.")
    assert made.schema["$defs"]["Item"]["required"] == ["name"]
    assert await made.run({"item": {"name": "x"}, "colour": "blue"}) == (
        '{"item":{"name":"x","count":1},"colour":"blue","tags":[]}'
    )
    first = await made.run({"item": {"name": "x"}})
    assert await made.run({"item": {"name": "x"}}) == first  # calls do not share a default


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing required field `a`"),
        ({"a": "1"}, r"Expected `int`, got `str` - at `\$.a`"),
        ({"a": 1, "b": -1}, r"\$.b"),
        ({"a": 1, "c": 1}, "unknown field `c`"),
    ],
)
async def test_invalid_arguments_are_refused_with_their_location(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        await tool(add).run(arguments)


async def test_an_exception_of_the_function_reaches_the_caller() -> None:
    def boom() -> None:
        raise LookupError("no such user")

    with pytest.raises(LookupError, match="no such user"):
        await tool(boom).run({})


async def test_a_plain_function_runs_in_a_thread_and_returns_done_for_none() -> None:
    threads: list[threading.Thread] = []

    def note() -> None:
        threads.append(threading.current_thread())

    assert await tool(note).run({}) == "done"
    assert threads != [threading.main_thread()]


async def test_methods_partials_and_callable_objects_can_be_tools() -> None:
    counter = Counter()
    assert await tool(counter.more).run({"by": 2}) == "2"
    assert await tool(counter, name="count").run({"by": 3}) == "5"
    bound = tool(functools.partial(add, b=10), name="ten_more")
    assert await bound.run({"a": 1}) == "11"


def test_a_function_without_a_valid_schema_or_name_is_refused() -> None:
    def untyped(a) -> None:  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]  # the case
        del a

    def many(*names: str) -> None:
        del names

    def by_position(a: int, /) -> None:
        del a

    def strange(a: threading.Thread) -> None:
        del a

    def unknown(a: Unknown) -> None:
        del a

    def bad_default(a: list[int] = [1]) -> None:  # noqa: B006
        del a

    cases: list[tuple[Callable[..., Any], str]] = [
        (untyped, "'a' has no type"),
        (many, "cannot be given by name"),
        (by_position, "cannot be given by name"),
        (strange, "has no JSON Schema"),
        (unknown, "unknown type"),
        (bad_default, "mutable"),
        (lambda: None, "not a valid tool name"),
        (Counter(), "not a valid tool name"),
    ]
    for function, message in cases:
        with pytest.raises(ProviderError, match=message):
            tool(function)


def test_two_tools_with_the_same_name_are_refused() -> None:
    other = CustomTool(name="add", description="", schema={}, run=tool(add).run)
    with pytest.raises(ProviderError, match="'add'"):
        as_tools([add, other])
    assert [made.name for made in as_tools([add, describe])] == ["add", "describe"]
