"""Combine the updates of tool calls and sub-agents into one start, output and one end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.acp.agents import Quirks
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
UNKNOWN_SUBAGENT = "sub-agents"  # several are active, and the agent does not name one

_NAMES = ("subagent_type", "agent_type")
_WRAPPED = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)


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

    def __init__(self, quirks: Quirks, *, has_own_tools: bool = False) -> None:
        self.subagents = Subagents()
        self._quirks = quirks
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
        has_input = bool(call.input) and not self._quirks.input_grows
        events = self._begin(call) if status != "pending" or has_input else []
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
        if self._quirks.titles_are_names:
            name = update.title
        else:
            tool_name = text_at(update.meta, "claudeCode", "toolName")
            name = tool_name or update.kind or update.title
        if name == "other":
            name = update.title
        if name and self._has_own_tools:
            name = given_name(name)
        call = _Call(update.tool_call_id, name or "tool", self.subagents.of(update.meta))
        self._open[call.id] = call
        return call

    def _begin(self, call: _Call) -> list[AgentEvent]:
        if call.is_started:
            return []
        call.is_started = True
        call.is_subagent = is_subagent(call.input)
        if call.is_subagent:
            return [self.subagents.called(call.id, call.input, call.agent)]
        return [ToolStarted(call.id, call.name, call.input, call.agent), *_effects(call)]

    def _ended(self, call: _Call, output: str, error: str | None) -> AgentEvent:
        if call.is_subagent:
            return self.subagents.returned(call.id, output, error)
        return ToolEnded(call.id, output, error, call.agent)


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


def is_subagent(input: Mapping[str, Any]) -> bool:
    """Return whether a tool with this input starts a sub-agent; agents show it no other
    way.
    """
    return "prompt" in input and any(name in input for name in _NAMES)


class Subagents:
    """The active sub-agents."""

    def __init__(self) -> None:
        self._active: dict[str, str | None] = {}  # call -> parent
        self._by_name: dict[str, str] = {}  # the agent's own id -> call

    def called(self, call: str, input: Mapping[str, Any], agent: str | None) -> SubagentStarted:
        self._active[call] = agent
        name = next(str(input[name]) for name in _NAMES if name in input)
        return SubagentStarted(call, name, str(input["prompt"]), agent)

    def returned(self, call: str, output: str, error: str | None) -> SubagentEnded:
        agent = self._active.pop(call, None)
        found = _WRAPPED.search(output)
        return SubagentEnded(call, found[1] if found else output, error, agent)

    def speaker(self) -> str | None:
        """Return the only active sub-agent as the author of a text without an author.

        With several, return UNKNOWN_SUBAGENT.
        """
        if len(self._active) > 1:
            return UNKNOWN_SUBAGENT
        return next(iter(self._active), None)

    def of(self, meta: Mapping[str, Any] | None) -> str | None:
        """Return the sub-agent of an update.

        None for the main agent, or if not reported.
        """
        if call := text_at(meta, "claudeCode", "parentToolUseId"):
            return call
        name = text_at(meta, "github.com/copilot", "agentId")
        if not name:
            return None
        if name not in self._by_name:
            # Its call if only one is possible, else the agent's own id.
            free = [call for call in self._active if call not in self._by_name.values()]
            self._by_name[name] = free[0] if len(free) == 1 else name
        return self._by_name[name]
