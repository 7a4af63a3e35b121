"""Translate the agent's updates of a session into events."""

from __future__ import annotations

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
    Update,
    UsageUpdate,
    as_object,
    read,
    text_at,
)
from atomic.providers.acp.tool_calls import ToolCalls, subagent_of
from atomic.providers.base import ContextUsage
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    PlanItem,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    Usage,
    UsageReported,
)
from atomic.providers.turn import Turn


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
