"""Test Copilot's forms: fields become questions, and answers become values of fields."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from atomic.providers import EndReason, Question
from atomic.providers.forms import Form
from atomic.testing.model_server import Call, Script
from tests.providers.copilot.sandbox import Sandbox, shared_sandbox, task
from tests.providers.turns import end, end_of, turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

COLOUR = {"properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}}, "required": ["colour"]}
ASK = Call("ask_user", {"message": "Which colour?", "requestedSchema": COLOUR})
SCRIPTS: dict[str, Script] = {
    "say": "hello",
    "ask": [[ASK], "You chose {{tool_result}}"],
    "lead": [[task("part")], "Lead: {{tool_result}}"],
    "part": [[ASK], "Part: {{tool_result}}"],
    "wait": [[Call("wait", {})], "never"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sandbox]:
    async with shared_sandbox(tmp_path_factory.mktemp("copilot"), SCRIPTS) as here:
        yield here


async def test_a_field_of_each_kind_becomes_a_question_and_a_value_again() -> None:
    fields: dict[str, Any] = {
        "size": {"type": "string", "title": "Which size?", "oneOf": [{"const": "s", "title": "Small"}]},
        "extras": {
            "type": "array",
            "items": {"anyOf": [{"const": "n", "title": "Nuts"}, {"const": "r", "title": "Rum"}]},
        },
        "gift": {"type": "boolean", "title": "A gift?", "description": "It is wrapped then.", "default": True},
        "count": {"type": "integer"},
        "name": {"type": "string", "default": "me"},
    }
    form = Form("Your order", {"type": "object", "properties": fields})
    size, extras, gift, count, name = form.questions
    assert (size.text, [option.label for option in size.options], size.header) == (
        "Which size?",
        ["Small"],
        "Your order",
    )
    assert (extras.text, extras.multi_select, [option.label for option in extras.options]) == (
        "extras",
        True,
        ["Nuts", "Rum"],
    )
    assert (gift.text, gift.default) == ("A gift?\nIt is wrapped then.", "Yes")
    assert not count.options
    assert name.default == "me"
    answers = form.values([["Small"], ["Nuts", "Figs"], ["No"], ["12"], ["a", "b"]])
    assert answers == {"size": "s", "extras": ["n", "Figs"], "gift": False, "count": 12, "name": "a, b"}
    assert form.values([["Tiny"], [], ["Perhaps"], ["a dozen"], []]) == {
        "size": "Tiny",
        "extras": [],
        "gift": "Perhaps",
        "count": "a dozen",
    }


async def test_the_question_of_a_form_with_one_field_is_its_message() -> None:
    [question] = Form("Which colour?", {"properties": {"colour": {"type": "string", "title": "Colour"}}}).questions
    assert (question.text, question.header) == ("Which colour?", "Colour")
    [question] = Form("Which colour?", None).questions
    assert question.text == "Which colour?"


async def test_sub_agents_have_no_question_tool(here: Sandbox) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        raise AssertionError("a sub-agent asked")

    async with here.open(ask=ask) as session:
        assert (await end(session, "@@lead@@")).reason is EndReason.DONE
    lead = next(call for call in here.server.calls if call.script == "lead")
    part = next(call for call in here.server.calls if call.script == "part")
    assert "ask_user" in lead.tools
    assert "ask_user" not in part.tools


async def test_an_unanswerable_question_ends_the_turn_but_not_the_session(here: Sandbox) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        raise LookupError("the user is away")

    async with here.open(ask=ask) as session:
        ended = await end(session, "@@ask@@")
        assert ended.reason is EndReason.ERROR
        assert "could not be answered: LookupError: the user is away" in (ended.error or "")
        assert (await end(session, "@@say@@")).text == "hello"


async def test_an_interrupt_withdraws_the_question(here: Sandbox) -> None:
    asked = asyncio.Event()
    withdrawn = asyncio.Event()

    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return []

    async with here.open(ask=ask) as session:
        running = asyncio.create_task(turn(session, "@@ask@@"))
        await asked.wait()
        await session.interrupt()
        assert end_of(await running).reason is EndReason.INTERRUPTED
        assert withdrawn.is_set()
        assert (await end(session, "@@say@@")).text == "hello"


async def test_an_interrupt_cancels_a_custom_tool(here: Sandbox) -> None:
    called = asyncio.Event()
    cancelled = asyncio.Event()

    async def wait() -> None:
        """Wait without end."""
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with here.open(custom_tools=[wait]) as session:
        running = asyncio.create_task(turn(session, "@@wait@@"))
        await called.wait()
        await session.interrupt()
        assert end_of(await running).reason is EndReason.INTERRUPTED
        assert cancelled.is_set()
        assert (await end(session, "@@say@@")).text == "hello"
