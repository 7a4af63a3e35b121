"""Combine the updates of tool calls and sub-agents into one start, output and one end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.acp.messages import ToolCall, ToolContent, as_object, text_at
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    PlanItem,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    ToolEnded,
    ToolOutput,
    ToolStarted,
)
from atomic.providers.tools import given_name

_ENDED = frozenset({"completed", "failed"})
_OUTPUT_FIELDS = ("output", "content", "error", "message", "text")


@dataclasses.dataclass
class _Call:
    id: str
    name: str
    agent: str | None
    input: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    output: str = ""
    is_started: bool = False
    is_subagent: bool = False


class ToolCalls:
    """All tool calls of a turn."""

    def __init__(self, *, has_own_tools: bool = False) -> None:
        self._has_own_tools = has_own_tools
        self._open: dict[str, _Call] = {}
        self._over: set[str] = set()

    def update(self, update: ToolCall) -> list[AgentEvent]:
        """Return the new events of an update."""
        if update.tool_call_id in self._over:
            return []
        call = self._open.get(update.tool_call_id) or self._called(update)
        call.input = as_object(update.raw_input) or call.input
        status = update.status or "pending"
        events = self._begin(call) if status != "pending" or call.input else []
        if status in _ENDED:
            del self._open[call.id]
            self._over.add(call.id)
            output = _text_of(update.content) or _raw_text(update.raw_output) or call.output
            error = (output or "failed") if status == "failed" else None
            return [*events, self._ended(call, output, error)]
        return [*events, *_output(call, _text_of(update.content))]

    def allowed(self, id: str) -> list[AgentEvent]:
        """Start a call: the agent asked for permission, so its input is complete."""
        call = self._open.get(id)
        return self._begin(call) if call is not None and call.input else []

    def end_all(self, error: str) -> list[AgentEvent]:
        """End all started calls at the end of the turn."""
        open = self._open
        self._open = {}
        self._over.update(open)
        return [self._ended(call, "", error) for call in open.values() if call.is_started]

    def _called(self, update: ToolCall) -> _Call:
        name = text_at(update.meta, "claudeCode", "toolName") or update.kind
        if not name or name == "other":
            name = update.title
        if name and self._has_own_tools:
            name = given_name(name)
        call = _Call(update.tool_call_id, name or "tool", subagent_of(update.meta))
        self._open[call.id] = call
        return call

    def _begin(self, call: _Call) -> list[AgentEvent]:
        if call.is_started:
            return []
        call.is_started = True
        if "prompt" in call.input and "subagent_type" in call.input:  # agents show it no other way
            call.is_subagent = True
            return [SubagentStarted(call.id, str(call.input["subagent_type"]), str(call.input["prompt"]), call.agent)]
        return [ToolStarted(call.id, call.name, call.input, call.agent), *_effects(call)]

    def _ended(self, call: _Call, output: str, error: str | None) -> AgentEvent:
        kind = SubagentEnded if call.is_subagent else ToolEnded
        return kind(call.id, output, error, call.agent)


def _output(call: _Call, text: str) -> list[AgentEvent]:
    """Return the new part of an output that is repeated as a whole each time."""
    if not call.is_started or call.is_subagent or not text or text == call.output:
        return []
    new = text[len(call.output) :] if text.startswith(call.output) else text
    call.output = text
    return [ToolOutput(call.id, new, call.agent)]


def _effects(call: _Call) -> list[AgentEvent]:
    """Return further events of a call: a loaded skill or a changed to-do list."""
    word = call.name.lower()
    if word == "skill":
        name = call.input.get("name") or call.input.get("skill")
        return [SkillLoaded(str(name), call.agent)] if name else []
    if word == "todowrite":
        try:
            items = msgspec.convert(call.input.get("todos"), tuple[_Todo, ...])
        except msgspec.ValidationError:  # a model may send anything
            return []
        return [PlanChanged(tuple(PlanItem(item.content, item.status) for item in items), call.agent)]
    return []


class _Todo(msgspec.Struct):
    content: str
    status: str = "pending"


def _text_of(content: Sequence[ToolContent] | None) -> str:
    blocks = [one.content for one in content or () if one.type == "content" and one.content is not None]
    return "\n".join(block.text for block in blocks if block.type == "text" and block.text is not None)


def _raw_text(output: Any) -> str:
    """Return the text in a tool's raw result, which every agent structures differently."""
    if isinstance(output, str):
        return output
    for field in _OUTPUT_FIELDS:
        if text := text_at(output, field):
            return text
    return "" if output is None else msgspec.json.encode(output).decode()


def subagent_of(meta: Mapping[str, Any] | None) -> str | None:
    """Return the sub-agent of an update.

    None for the main agent, or if not reported.
    """
    return text_at(meta, "claudeCode", "parentToolUseId") or None
