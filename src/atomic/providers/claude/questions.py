"""Answer the agent's questions, which arrive through the program's permission prompt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from atomic.providers.base import Ask
from atomic.providers.claude.control import Json, ToolUse
from atomic.providers.claude.launch import QUESTION
from atomic.providers.events import QuestionAsked
from atomic.questions import Option, Question

MayUse: TypeAlias = Callable[[ToolUse], Awaitable[Json]]


class _Option(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class _Question(msgspec.Struct, frozen=True, rename="camel"):
    question: str
    header: str = ""
    multi_select: bool = False
    options: list[_Option] = []


class _Questions(msgspec.Struct, frozen=True):
    questions: list[_Question]


def permission(ask: Ask | None, emit: Callable[[QuestionAsked, str | None], None]) -> MayUse:
    """Allow every tool; ask the user a question first.

    `emit` receives it and its task.
    """

    async def may_use(use: ToolUse) -> Json:
        if use.tool_name != QUESTION:
            return _allowed(use.input)
        if ask is None:
            return {"behavior": "deny", "message": "No user is available to answer."}
        questions = read_questions(use.input)
        emit(QuestionAsked(questions), use.agent_id)
        answers = await ask(questions)
        chosen = {one.text: ", ".join(labels) for one, labels in zip(questions, answers, strict=True)}
        return _allowed({**use.input, "answers": chosen})

    return may_use


def _allowed(input: Json) -> Json:
    return {"behavior": "allow", "updatedInput": input}


def read_questions(input: Json) -> tuple[Question, ...]:
    """Convert the questions. Raise msgspec.ValidationError."""
    return tuple(
        Question(
            one.question,
            header=one.header,
            multi_select=one.multi_select,
            options=[Option(option.label, option.description) for option in one.options],
        )
        for one in msgspec.convert(input, _Questions).questions
    )
