"""What an agent does, in one vocabulary for all providers.

Ids are normalised at this border: one for one tool call, one for one sub-agent. `agent` is the sub-agent that an
event belongs to, None for the agent itself. As JSON each carries its name: `{"type": "text_delta", ...}`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from atomic.questions import Question
from atomic.usage import Usage


class EndReason(StrEnum):
    """Why a turn is over."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    MAX_TURNS = "max_turns"
    REFUSED = "refused"
    LIMIT = "limit"
    ERROR = "error"


class PlanItem(msgspec.Struct, frozen=True):
    """One line of an agent's own to-do list."""

    text: str
    status: str = "pending"  # pending, in_progress, completed, cancelled


class Event(msgspec.Struct, frozen=True, tag_field="type"):
    """What all events have."""


class TextDelta(Event, frozen=True, tag="text_delta"):
    """A piece of the answer."""

    text: str
    agent: str | None = None


class ThinkingDelta(Event, frozen=True, tag="thinking_delta"):
    """A piece of what it thinks."""

    text: str
    agent: str | None = None


class ToolStarted(Event, frozen=True, tag="tool_started"):
    """A tool was called; its input is complete."""

    id: str
    name: str
    input: dict[str, Any] = {}
    agent: str | None = None


class ToolOutput(Event, frozen=True, tag="tool_output"):
    """A running tool said something."""

    id: str
    text: str
    agent: str | None = None


class ToolEnded(Event, frozen=True, tag="tool_ended"):
    """A tool is over; `error` says why it failed, None if it did not."""

    id: str
    output: str = ""
    error: str | None = None
    agent: str | None = None


class SubagentStarted(Event, frozen=True, tag="subagent_started"):
    """A sub-agent began; its own events carry `id` as their `agent`."""

    id: str
    name: str
    task: str = ""
    agent: str | None = None


class SubagentEnded(Event, frozen=True, tag="subagent_ended"):
    """A sub-agent is over."""

    id: str
    text: str = ""
    error: str | None = None
    agent: str | None = None


class SkillLoaded(Event, frozen=True, tag="skill_loaded"):
    """The agent took up a skill."""

    name: str
    agent: str | None = None


class QuestionAsked(Event, frozen=True, tag="question_asked"):
    """The agent asks a person; the answers go through `SessionOptions.ask`."""

    questions: tuple[Question, ...]
    agent: str | None = None


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """The agent's to-do list, as it is now."""

    items: tuple[PlanItem, ...]
    agent: str | None = None


class Compacted(Event, frozen=True, tag="compacted"):
    """The context was summarised; tokens before and after, where they are known."""

    before: int | None = None
    after: int | None = None
    agent: str | None = None


class UsageReported(Event, frozen=True, tag="usage_reported"):
    """What one call of a model cost."""

    usage: Usage
    agent: str | None = None


class LimitReached(Event, frozen=True, tag="limit_reached"):
    """The provider does not serve now: too many requests, overload, or a usage window that is used up."""

    reset_at: datetime | None = None
    message: str = ""
    agent: str | None = None


class Notice(Event, frozen=True, tag="notice"):
    """Something that a person may want to read; it changes nothing."""

    text: str
    agent: str | None = None


class TurnEnded(Event, frozen=True, tag="turn_ended"):
    """The turn is over: the last event, and only the last. `text` is the agent's last message."""

    reason: EndReason
    text: str = ""
    usage: Usage = Usage()
    error: str | None = None
    agent: str | None = None


AgentEvent = (
    TextDelta
    | ThinkingDelta
    | ToolStarted
    | ToolOutput
    | ToolEnded
    | SubagentStarted
    | SubagentEnded
    | SkillLoaded
    | QuestionAsked
    | PlanChanged
    | Compacted
    | UsageReported
    | LimitReached
    | Notice
    | TurnEnded
)
