"""Events of an agent, in one vocabulary for all providers.

Adapters normalise ids: one id per tool call, one per sub-agent. `agent` is the id of
the sub-agent that an event belongs to, None for the main agent. As JSON, each event has
its name as `type`: `{"type": "text_delta", ...}`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from atomic.base.usage import Usage
from atomic.questions import Question


class EndReason(StrEnum):
    """Why a turn ended."""

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
    """The base class of all events."""


class TextDelta(Event, frozen=True, tag="text_delta"):
    """A piece of the answer."""

    text: str
    agent: str | None = None


class ThinkingDelta(Event, frozen=True, tag="thinking_delta"):
    """A piece of the agent's thinking."""

    text: str
    agent: str | None = None


class ToolStarted(Event, frozen=True, tag="tool_started"):
    """A tool was called; its input is complete."""

    id: str
    name: str
    input: dict[str, Any] = {}
    agent: str | None = None


class ToolOutput(Event, frozen=True, tag="tool_output"):
    """A running tool printed something."""

    id: str
    text: str
    agent: str | None = None


class ToolEnded(Event, frozen=True, tag="tool_ended"):
    """A tool ended; `error` is the reason if it failed, else None."""

    id: str
    output: str = ""
    error: str | None = None
    agent: str | None = None


class SubagentStarted(Event, frozen=True, tag="subagent_started"):
    """A sub-agent started; its own events carry `id` as their `agent`."""

    id: str
    name: str
    task: str = ""
    agent: str | None = None


class SubagentEnded(Event, frozen=True, tag="subagent_ended"):
    """A sub-agent ended."""

    id: str
    text: str = ""
    error: str | None = None
    agent: str | None = None


class SkillLoaded(Event, frozen=True, tag="skill_loaded"):
    """The agent loaded a skill."""

    name: str
    agent: str | None = None


class QuestionAsked(Event, frozen=True, tag="question_asked"):
    """The agent asked the user; the answers go through `SessionOptions.ask`."""

    questions: tuple[Question, ...]
    agent: str | None = None


class PlanChanged(Event, frozen=True, tag="plan_changed"):
    """The agent changed its to-do list; `items` is the whole new list."""

    items: tuple[PlanItem, ...]
    agent: str | None = None


class Compacted(Event, frozen=True, tag="compacted"):
    """The context was summarised; the token counts are None if unknown."""

    before: int | None = None
    after: int | None = None
    agent: str | None = None


class UsageReported(Event, frozen=True, tag="usage_reported"):
    """Tokens and cost of one model call."""

    usage: Usage
    agent: str | None = None


class LimitReached(Event, frozen=True, tag="limit_reached"):
    """The provider refuses requests: rate limit, overload or exhausted usage window."""

    reset_at: datetime | None = None
    message: str = ""
    agent: str | None = None


class Notice(Event, frozen=True, tag="notice"):
    """Information for the user that changes nothing."""

    text: str
    agent: str | None = None


class TurnEnded(Event, frozen=True, tag="turn_ended"):
    """The turn ended; always the last event. `text` is the agent's last message."""

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
