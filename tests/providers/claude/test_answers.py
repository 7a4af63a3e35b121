"""Test answers of a given type.

Claude Code accepts a schema only at start. The conversation continues regardless.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from atomic.providers import AnswerError
from atomic.testing.model_server import Call, Fail, Word
from tests.providers.claude.sandbox import sandbox
from tests.providers.turns import LIMIT, end

pytestmark = pytest.mark.ci


class Finding(msgspec.Struct):
    title: str
    line: int = 0


class Review(msgspec.Struct):
    approve: bool
    findings: list[Finding] = []


def structured(**data: object) -> Word:
    return Call("StructuredOutput", data)


async def test_a_new_session_and_a_later_turn_return_typed_answers(tmp_path: Path) -> None:
    finding = {"title": "zu groß", "line": 7}
    scripts = {
        "review": [structured(approve=False, findings=[finding]), "never asked for"],
        "number": [structured(value=42), "never asked for"],
        "say": "hello",
    }
    async with sandbox(tmp_path, scripts) as here, here.open(tools=["Read"]) as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(Review, "@@review@@ go") == Review(False, [Finding("zu groß", 7)])
        id = session.id
        assert (await end(session, "@@say@@ my number is 4711")).text == "hello"
        assert "StructuredOutput" not in here.server.calls[-1].tools
        assert await session.ask_for(int, "@@number@@ go") == 42
        assert "4711" in str(here.server.calls[-1].body["messages"])
        assert (await end(session, "@@say@@ go")).text == "hello"
        assert session.id == id


async def test_the_agent_may_correct_an_invalid_answer_twice(tmp_path: Path) -> None:
    scripts = {"review": [structured(approve="maybe"), structured(finding="none"), structured(approve=True), "fin"]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(Review, "@@review@@ go") == Review(True)


async def test_a_missing_answer_is_an_error_with_the_reason(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"bad": Fail(400, message="not today")}) as here, here.open() as session:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(AnswerError, match="not today"):
                await session.ask_for(Review, "@@bad@@ go")


class Circle(msgspec.Struct, tag=True):
    radius: int


class Box(msgspec.Struct, tag=True):
    sides: tuple[int, int]


async def test_an_answer_can_be_a_list_of_tagged_unions_with_tuples(tmp_path: Path) -> None:
    scripts = {"shapes": [structured(value=[{"type": "Box", "sides": [2, 3]}, {"type": "Circle", "radius": 1}]), "fin"]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(list[Circle | Box], "@@shapes@@ go") == [Box((2, 3)), Circle(1)]


async def test_the_error_names_a_schema_that_is_refused_in_a_later_turn(tmp_path: Path) -> None:
    class Odd(msgspec.Struct):
        number: Annotated[int, msgspec.Meta(extra_json_schema={"x-odd": True})]

    async with sandbox(tmp_path, {"say": "hello"}) as here, here.open() as session, asyncio.timeout(LIMIT):
        await end(session, "@@say@@ go")
        with pytest.raises(AnswerError, match="x-odd"):
            await session.ask_for(Odd, "@@say@@ go")
        assert (await end(session, "@@say@@ go")).text == "hello"
