"""Test questions of the agent: the user sees them, and the agent gets the chosen labels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import EndReason, Option, Question, QuestionAsked
from atomic.testing.model_server import Call, Word
from tests.providers.claude.sandbox import sandbox
from tests.providers.turns import LIMIT, all_of, end, end_of, turn


def asks(*questions: tuple[str, bool]) -> Call:
    options = [{"label": "Red", "description": "like blood"}, {"label": "Blau & Weiß", "description": "like the sky"}]
    given: list[dict[str, Any]] = [
        {"question": text, "header": "Colour", "multiSelect": many, "options": options} for text, many in questions
    ]
    return Call("AskUserQuestion", {"questions": given})


def question(text: str, many: bool) -> Question:
    options = [Option("Red", "like blood"), Option("Blau & Weiß", "like the sky")]
    return Question(text, header="Colour", multi_select=many, options=options)


async def test_the_user_sees_all_questions_and_the_agent_gets_the_labels(tmp_path: Path) -> None:
    asked: list[Sequence[Question]] = []

    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        asked.append(questions)
        return [["Red"], ["Red", "Blau & Weiß"]]

    scripts = {
        "ask": [asks(("Which?", False), ("Which ones?", True)), "{{tool_result}}"],
        "plan": [Call("EnterPlanMode", {}), "{{tool_result}}"],
    }
    async with sandbox(tmp_path, scripts) as here, here.open(ask=ask) as session:
        events = await turn(session, "@@ask@@ go")
        assert "No such tool" in (await end(session, "@@plan@@ go")).text  # plans need no approval
    wanted = (question("Which?", False), question("Which ones?", True))
    assert asked == [wanted]
    assert [event.questions for event in all_of(QuestionAsked, events)] == [wanted]
    assert '"Which?"="Red", "Which ones?"="Red, Blau & Weiß"' in end_of(events).text


async def test_without_a_user_the_agent_has_no_question_tool(tmp_path: Path) -> None:
    scripts = {"ask": [asks(("Which?", False)), "{{tool_result}}"]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await turn(session, "@@ask@@ go")
        assert "No such tool available: AskUserQuestion" in end_of(events).text
        assert all_of(QuestionAsked, events) == []
        assert "AskUserQuestion" not in here.server.calls[0].tools


@pytest.mark.ci
async def test_two_agents_and_two_calls_may_ask_at_the_same_time(tmp_path: Path) -> None:
    waiting: set[str] = set()
    all_ask = asyncio.Event()

    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        waiting.add(questions[0].text)
        if len(waiting) == 2:
            all_ask.set()
        await all_ask.wait()
        return [[f"answer to {questions[0].text}"]]

    two: list[Word | str] = [asks(("C?", False)), asks(("D?", False))]
    scripts = {
        "a": [asks(("A?", False)), "{{tool_result}}"],
        "b": [asks(("B?", False)), "{{tool_result}}"],
        "two": [two, "{{tool_result}}"],
    }
    async with sandbox(tmp_path, scripts) as here, here.open(ask=ask) as first, here.open(ask=ask) as second:
        ends = await asyncio.gather(end(first, "@@a@@ go"), end(second, "@@b@@ go"))
        assert ['"A?"="answer to A?"' in ends[0].text, '"B?"="answer to B?"' in ends[1].text] == [True, True]
        text = (await end(first, "@@two@@ go")).text
        assert '"C?"="answer to C?"' in text
        assert '"D?"="answer to D?"' in text


async def test_an_unanswerable_question_ends_the_turn_but_not_the_session(tmp_path: Path) -> None:
    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        raise RuntimeError("the line is dead")

    scripts = {"ask": [asks(("Which?", False)), "I continued without an answer"], "next": "Still here."}
    async with sandbox(tmp_path, scripts) as here, here.open(ask=ask) as session:
        ended = await end(session, "@@ask@@ go")
        assert ended.reason is EndReason.ERROR
        assert "could not be answered: RuntimeError: the line is dead" in (ended.error or "")
        assert (await end(session, "@@next@@ go")).text == "Still here."


@pytest.mark.ci
async def test_an_interrupt_cancels_a_question(tmp_path: Path) -> None:
    asked = asyncio.Event()
    gone = asyncio.Event()

    async def ask(questions: Sequence[Question]) -> Sequence[Sequence[str]]:
        asked.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            gone.set()
        return [["Red"]]

    scripts = {"ask": [asks(("Which?", False)), "never"], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open(ask=ask) as session, asyncio.timeout(LIMIT):
        running = asyncio.create_task(end(session, "@@ask@@ go"))
        await asked.wait()
        await session.interrupt()
        assert (await running).reason is EndReason.INTERRUPTED
        await gone.wait()
        assert (await end(session, "@@say@@ go")).text == "hello"
