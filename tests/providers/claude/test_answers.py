"""Answers of a given type: the program takes a schema only when it starts, and nobody notices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from atomic.providers import AnswerError
from atomic.testing.model_server import Call, Fail, Word
from tests.providers.claude.place import place
from tests.providers.turns import LIMIT, end

pytestmark = pytest.mark.ci


class Finding(msgspec.Struct):
    title: str
    line: int = 0


class Review(msgspec.Struct):
    approve: bool
    findings: list[Finding] = []


def answers(**data: object) -> Word:
    return Call("StructuredOutput", data)


async def test_a_typed_answer_in_a_fresh_session_and_within_a_conversation(tmp_path: Path) -> None:
    finding = {"title": "zu groß", "line": 7}
    scripts = {
        "review": [answers(approve=False, findings=[finding]), "never asked for"],
        "number": [answers(value=42), "never asked for"],
        "say": "hello",
    }
    async with place(tmp_path, scripts) as here, here.open(tools=["Read"]) as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(Review, "@@review@@ go") == Review(False, [Finding("zu groß", 7)])
        id = session.id
        assert (await end(session, "@@say@@ my number is 4711")).text == "hello"
        assert "StructuredOutput" not in here.server.calls[-1].tools
        assert await session.ask_for(int, "@@number@@ go") == 42
        assert "4711" in str(here.server.calls[-1].body["messages"])
        assert (await end(session, "@@say@@ go")).text == "hello"
        assert session.id == id


async def test_wrong_twice_then_right(tmp_path: Path) -> None:
    scripts = {"review": [answers(approve="maybe"), answers(finding="none"), answers(approve=True), "fin"]}
    async with place(tmp_path, scripts) as here, here.open() as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(Review, "@@review@@ go") == Review(True)


async def test_no_answer_is_an_error_that_says_why(tmp_path: Path) -> None:
    async with place(tmp_path, {"bad": Fail(400, message="not today")}) as here, here.open() as session:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(AnswerError, match="not today"):
                await session.ask_for(Review, "@@bad@@ go")


class Circle(msgspec.Struct, tag=True):
    radius: int


class Box(msgspec.Struct, tag=True):
    sides: tuple[int, int]


async def test_tagged_unions_and_tuples_are_types_too(tmp_path: Path) -> None:
    scripts = {"shapes": [answers(value=[{"type": "Box", "sides": [2, 3]}, {"type": "Circle", "radius": 1}]), "fin"]}
    async with place(tmp_path, scripts) as here, here.open() as session, asyncio.timeout(LIMIT):
        assert await session.ask_for(list[Circle | Box], "@@shapes@@ go") == [Box((2, 3)), Circle(1)]


async def test_a_schema_that_is_refused_in_a_conversation_is_the_reason_that_is_told(tmp_path: Path) -> None:
    class Odd(msgspec.Struct):
        number: Annotated[int, msgspec.Meta(extra_json_schema={"x-odd": True})]

    async with place(tmp_path, {"say": "hello"}) as here, here.open() as session, asyncio.timeout(LIMIT):
        await end(session, "@@say@@ go")
        with pytest.raises(AnswerError, match="x-odd"):
            await session.ask_for(Odd, "@@say@@ go")
        assert (await end(session, "@@say@@ go")).text == "hello"
