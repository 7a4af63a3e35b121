"""Tool calls: from the scattered updates of each, one beginning, what it says, and one end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from atomic.providers.acp.known import Ways
from atomic.providers.acp.loose import as_object, word_in
from atomic.providers.acp.messages import ToolCall, ToolContent
from atomic.providers.acp.subagents import Subagents, is_subagent
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    PlanItem,
    SkillLoaded,
    ToolEnded,
    ToolOutput,
    ToolStarted,
)
from atomic.providers.tools import given_name

_OVER = frozenset({"completed", "failed"})
_WORDS = ("output", "content", "error", "message", "text")  # where agents put what a tool said


@dataclass
class _Call:
    id: str
    name: str
    agent: str | None
    input: dict[str, Any] = field(default_factory=dict[str, Any])
    said: str = ""
    is_told: bool = False
    is_subagent: bool = False


class ToolCalls:
    """All calls of a turn."""

    def __init__(self, ways: Ways, *, has_own_tools: bool = False) -> None:
        self.subagents = Subagents()
        self._ways, self._has_own_tools = ways, has_own_tools
        self._open: dict[str, _Call] = {}
        self._over: set[str] = set()

    def heard(self, update: ToolCall) -> list[AgentEvent]:
        """What an update is news of."""
        if update.tool_call_id in self._over:
            return []
        call = self._open.get(update.tool_call_id) or self._called(update)
        call.input = as_object(update.raw_input) or call.input
        status = update.status or "pending"
        events = self._begin(call) if self._is_ready(call, status) else []
        if status in _OVER:
            return [*events, *self._begin(call), self._end(call, update, failed=status == "failed")]
        return [*events, *_output(call, _text_of(update.content))]

    def allowed(self, id: str) -> list[AgentEvent]:
        """The agent asked whether it may run: its input is complete."""
        call = self._open.get(id)
        return self._begin(call) if call is not None and call.input else []

    def leave_none_open(self, why: str) -> list[AgentEvent]:
        """The turn is over: end all that were told to have begun."""
        open, self._open = self._open, {}
        self._over.update(open)
        return [self._ended(call, "", why) for call in open.values() if call.is_told]

    def _called(self, update: ToolCall) -> _Call:
        name = update.title if self._ways.titles_are_names else _tool_name(update) or update.kind or update.title
        if name == "other":
            name = update.title
        if name and self._has_own_tools:
            name = given_name(name)
        call = _Call(update.tool_call_id, name or "tool", self.subagents.of(update.meta))
        self._open[call.id] = call
        return call

    def _is_ready(self, call: _Call, status: str) -> bool:
        return status != "pending" or (bool(call.input) and not self._ways.input_grows)

    def _begin(self, call: _Call) -> list[AgentEvent]:
        if call.is_told:
            return []
        call.is_told, call.is_subagent = True, is_subagent(call.input)
        if call.is_subagent:
            return [self.subagents.called(call.id, call.input, call.agent)]
        return [ToolStarted(call.id, call.name, call.input, call.agent), *_meaning(call)]

    def _end(self, call: _Call, update: ToolCall, *, failed: bool) -> AgentEvent:
        del self._open[call.id]
        self._over.add(call.id)
        output = _text_of(update.content) or _words(update.raw_output) or call.said
        return self._ended(call, output, (output or "it failed") if failed else None)

    def _ended(self, call: _Call, output: str, error: str | None) -> AgentEvent:
        if call.is_subagent:
            return self.subagents.returned(call.id, output, error)
        return ToolEnded(call.id, output, error, call.agent)


def _tool_name(update: ToolCall) -> str:
    """The tool's own name, where the agent tells it beside its title."""
    return word_in(update.meta, "claudeCode", "toolName")


def _output(call: _Call, text: str) -> list[AgentEvent]:
    """The news of an output that is told anew as a whole each time."""
    if not call.is_told or call.is_subagent or not text or text == call.said:
        return []
    news = text[len(call.said) :] if text.startswith(call.said) else text
    call.said = text
    return [ToolOutput(call.id, news, call.agent)]


def _meaning(call: _Call) -> list[AgentEvent]:
    """What a call is besides: a skill that is taken up, a to-do list that changes."""
    word = call.name.lower()
    if word == "skill":
        name = call.input.get("name") or call.input.get("skill")
        return [SkillLoaded(str(name), call.agent)] if name else []
    if word == "todowrite":
        try:
            items = msgspec.convert(call.input.get("todos"), tuple[_Todo, ...])
        except msgspec.ValidationError:  # a model may call a tool with anything
            return []
        return [PlanChanged(tuple(PlanItem(item.content, item.status) for item in items), call.agent)]
    return []


class _Todo(msgspec.Struct):
    content: str
    status: str = "pending"


def _text_of(content: Sequence[ToolContent] | None) -> str:
    blocks = [one.content for one in content or () if one.type == "content" and one.content is not None]
    return "\n".join(block.text for block in blocks if block.type == "text" and block.text is not None)


def _words(output: Any) -> str:
    """What a tool said, out of the raw result of whatever agent."""
    if isinstance(output, str):
        return output
    said = next((text for word in _WORDS if (text := word_in(output, word))), "")
    return said or ("" if output is None else _json(output))


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()
