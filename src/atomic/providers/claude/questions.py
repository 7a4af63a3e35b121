"""The agent's question to a person: asked through the program's permission prompt, answered by labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from claude_agent_sdk import CanUseTool, PermissionResultAllow, PermissionResultDeny, ToolPermissionContext

from atomic.providers.base import Ask
from atomic.providers.claude.launch import QUESTION
from atomic.providers.events import QuestionAsked
from atomic.questions import Option, Question


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


def permission(ask: Ask | None, tell: Callable[[QuestionAsked, str | None], None]) -> CanUseTool:
    """Allow all that the program asks about; a question is put to a person first. `tell` gets it and its task."""

    async def can_use_tool(
        tool: str, input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        if tool != QUESTION:
            return PermissionResultAllow()
        if ask is None:
            return PermissionResultDeny(message="Nobody is there to answer.")
        questions = read_questions(input)
        tell(QuestionAsked(questions), context.agent_id)
        answers = await ask(questions)
        chosen = {one.text: ", ".join(labels) for one, labels in zip(questions, answers, strict=True)}
        return PermissionResultAllow(updated_input={**input, "answers": chosen})

    return can_use_tool


def read_questions(input: dict[str, Any]) -> tuple[Question, ...]:
    """The questions as ours. Raises msgspec.ValidationError."""
    return tuple(
        Question(
            one.question,
            header=one.header,
            multi_select=one.multi_select,
            options=[Option(option.label, option.description) for option in one.options],
        )
        for one in msgspec.convert(input, _Questions).questions
    )
