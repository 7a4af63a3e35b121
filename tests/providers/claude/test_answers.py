"""Answers of a given type: the program takes a schema only when it starts, and nobody notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from atomic.providers import AnswerError
from atomic.testing.model_server import Call, Fail, Word
from tests.providers.claude.place import place
from tests.providers.heard import LIMIT, end


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
