"""Translate the agent's updates of a session into events.

The updates of a tool call or sub-agent become one start, output and one end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.acp.messages import (
    IGNORED,
    UPDATES,
    ConfigOption,
    MessageChunk,
    OptionsUpdate,
    Plan,
    PlanEntry,
    PlanRemoved,
    PlanUpdate,
    ThoughtChunk,
    Tokens,
    ToolCall,
    ToolContent,
    Update,
    UsageUpdate,
    as_object,
    read,
    text_at,
)
from atomic.providers.base import ContextUsage
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    PlanItem,
    SkillLoaded,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.providers.tools import given_name
from atomic.providers.turn import Turn

_ENDED = frozenset({"completed", "failed"})
_OUTPUT_FIELDS = ("output", "content", "error", "message", "text")


class Meters:
    """Counters of a session, from which each turn's share is computed."""

    def __init__(self, *, is_new: bool) -> None:
        self.context = ContextUsage()
        self._cost: float | None = None  # of the session, as last reported
        # The earlier cost of a resumed session is unknown.
        self._paid: float | None = 0.0 if is_new else None

    def update(self, usage: UsageUpdate) -> None:
        self.context = ContextUsage(usage.used, usage.size)
        if usage.cost is not None and usage.cost.currency == "USD":
            self._cost = usage.cost.amount

    def interim(self) -> Usage | None:
        """Return the cost of the turn since the last call; None if unknown or 0."""
        cost = self._turn_cost()
        return Usage(cost=cost) if cost else None

    def turn(self, reported: Tokens | None) -> Usage | None:
        """Return the usage of an ended turn without the interim cost.

        None if unknown.
        """
        cost = self._turn_cost()
        if reported is None:
            return Usage(cost=cost) if cost else None
        # The total shows whether cached tokens are part of the input.
        rest = reported.total_tokens - reported.output_tokens - (reported.thought_tokens or 0)
        read = max(reported.input_tokens, rest)
        return Usage(read, reported.output_tokens, reported.cached_read_tokens or 0, cost)

    def _turn_cost(self) -> float | None:
        if self._cost is None:
            return None
        before = self._paid
        self._paid = self._cost
        return None if before is None else max(0.0, self._cost - before)


class Translator:
    """Receives the updates of one session; between turns it only keeps the state."""

    def __init__(self, meters: Meters, *, has_own_tools: bool = False) -> None:
        self.meters = meters
        self.options: Sequence[ConfigOption] = ()
        self.has_answered = False  # in this turn
        self._has_own_tools = has_own_tools
        self._session = ""
        self._turn: Turn | None = None
        self._calls = ToolCalls(has_own_tools=has_own_tools)
        self._message: str | None = None

    def program_started(self, session: str, options: Sequence[ConfigOption]) -> None:
        """Note that a program has opened the session."""
        self._session = session
        self.options = options

    def begin(self, turn: Turn) -> None:
        self._turn = turn
        self._calls = ToolCalls(has_own_tools=self._has_own_tools)
        self._message = None
        self.has_answered = False

    def finish(self, reason: str) -> None:
        """End the turn and, for that reason, all open tool calls and sub-agents."""
        self.emit(self._calls.end_all(reason))
        self._turn = None

    def emit(self, events: Sequence[AgentEvent]) -> None:
        for event in events:
            if self._turn is None or self._turn.over:
                return
            if isinstance(event, SubagentStarted) and event.agent is None:
                self._turn.begin_message()  # a new message follows, as after a tool
            self._turn.emit(event)

    def note_unknown(self, kind: str) -> None:
        if self._turn is not None:
            self._turn.note_unknown(kind)

    def allowed(self, call: str) -> None:
        """Note that the agent asked for permission to run a tool."""
        self.emit(self._calls.allowed(call))

    def receive(self, params: Mapping[str, Any]) -> None:
        """Handle one update."""
        if self._turn is not None and params.get("sessionId") != self._session:
            self.note_unknown("an update of another session")
            return
        update = as_object(params.get("update"))
        kind = text_at(update, "sessionUpdate")
        if kind in UPDATES:
            self._take(kind, update)
        elif kind not in IGNORED:
            self.note_unknown(kind[:80])

    def _take(self, kind: str, raw: Mapping[str, Any]) -> None:
        try:
            update = read(raw, UPDATES[kind])
        except msgspec.ValidationError:
            self.note_unknown(f"{kind} of an unknown shape")
            return
        if isinstance(update, UsageUpdate):
            self.meters.update(update)
        elif isinstance(update, OptionsUpdate):
            self.options = update.config_options
        if self._turn is not None:
            self.emit(self._events(update))

    def _events(self, update: Update) -> list[AgentEvent]:
        match update:
            case MessageChunk() | ThoughtChunk():
                return self._chunk(update)
            case ToolCall():
                return self._calls.update(update)
            case UsageUpdate():
                usage = self.meters.interim()
                return [] if usage is None else [UsageReported(usage)]
            case Plan(entries=entries):
                return [_plan(entries)]
            case PlanUpdate(plan=plan) if plan.type == "items" and plan.entries is not None:
                return [_plan(plan.entries)]
            case PlanUpdate(plan=plan):
                self.note_unknown(f"a plan as {plan.type}")
                return []
            case PlanRemoved():
                return [PlanChanged(())]
            case _:  # already kept
                return []

    def _chunk(self, chunk: MessageChunk | ThoughtChunk) -> list[AgentEvent]:
        text = chunk.content.text if chunk.content.type == "text" else None
        if text is None:
            self.note_unknown(f"a message with {chunk.content.type}")
            return []
        if not text:
            return []
        agent = subagent_of(chunk.meta)
        if isinstance(chunk, ThoughtChunk):
            return [ThinkingDelta(text, agent)]
        if agent is None:
            self.has_answered = True
            if self._turn is not None and chunk.message_id is not None and chunk.message_id != self._message:
                if self._message is not None:
                    self._turn.begin_message()  # its text is then the last one
                self._message = chunk.message_id
        return [TextDelta(text, agent)]


def _plan(entries: Sequence[PlanEntry]) -> PlanChanged:
    return PlanChanged(tuple(PlanItem(entry.content, entry.status) for entry in entries))


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
        if not call.input and status in _ENDED:
            call.input = _described(update)
        events = self._begin(call) if status != "pending" or call.input else []
        if status in _ENDED:
            del self._open[call.id]
            self._over.add(call.id)
            call.output += _terminal_text(update)
            output = _text_of(update.content) or call.output or _raw_text(update.raw_output)
            error = (output or "failed") if status == "failed" else None
            return [*events, self._ended(call, output, error)]
        terminal = _terminal_text(update)
        text = call.output + terminal if terminal else _text_of(update.content)
        return [*events, *_output(call, text)]

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


def _described(update: ToolCall) -> dict[str, Any]:
    """Return what is known of a call whose agent does not report its input."""
    described: dict[str, Any] = {}
    if update.title:
        described["title"] = update.title
    if update.locations:
        described["path"] = update.locations[0].path
    return described


def _terminal_text(update: ToolCall) -> str:
    """Return the new output of a command that runs in a terminal of the agent."""
    return text_at(update.meta, "terminal_output_delta", "data") or text_at(update.meta, "terminal_output", "data")


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
