"""Translate the agent's updates of a session into events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.acp.agents import Quirks
from atomic.providers.acp.messages import (
    IGNORED,
    UPDATES,
    CommandsUpdate,
    ConfigOption,
    MessageChunk,
    OptionsUpdate,
    Plan,
    PlanEntry,
    PlanRemoved,
    PlanUpdate,
    ThoughtChunk,
    ToolCall,
    Update,
    UsageUpdate,
    as_object,
    read,
    text_at,
)
from atomic.providers.acp.tool_calls import ToolCalls
from atomic.providers.acp.usage import Meters
from atomic.providers.events import (
    AgentEvent,
    Notice,
    PlanChanged,
    PlanItem,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from atomic.providers.turn import Turn

_PROGRAM_MESSAGE = re.compile(r"(Info|Warning|Error): (?=\S)")


class Translator:
    """Receives the updates of one session; between turns it only keeps the state."""

    def __init__(self, quirks: Quirks, meters: Meters, *, has_own_tools: bool = False) -> None:
        self.meters = meters
        self.options: Sequence[ConfigOption] = ()
        self.error: str | None = None  # reported as text; only the last message of a turn counts
        self.has_answered = False  # in this turn
        self._quirks = quirks
        self._has_own_tools = has_own_tools
        self._session = ""
        self._commands: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._turn: Turn | None = None
        self._calls = ToolCalls(quirks, has_own_tools=has_own_tools)
        self._message: str | None = None
        self.moved = asyncio.get_running_loop().time()  # the last update
        self.worked = self.moved  # the last progress of the work

    def program_started(self, session: str, options: Sequence[ConfigOption]) -> None:
        """Note that a program has opened the session."""
        self._session = session
        self.options = options
        self.meters.program_started()

    async def known_commands(self) -> frozenset[str]:
        """Return the agent's own commands, once it has reported them."""
        return await asyncio.shield(self._commands)

    def begin(self, turn: Turn) -> None:
        self._turn = turn
        self._calls = ToolCalls(self._quirks, has_own_tools=self._has_own_tools)
        self._message = None
        self.error = None
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
            if not isinstance(event, (TextDelta, ThinkingDelta, Notice)):
                self.worked = asyncio.get_running_loop().time()
            self._turn.emit(event)

    def note_unknown(self, kind: str) -> None:
        if self._turn is not None:
            self._turn.note_unknown(kind)

    def allowed(self, call: str) -> None:
        """Note that the agent asked for permission to run a tool."""
        self.emit(self._calls.allowed(call))

    def receive(self, params: Mapping[str, Any]) -> None:
        """Handle one update."""
        self.moved = asyncio.get_running_loop().time()
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
        self._keep(update)
        if self._turn is not None:
            self.emit(self._events(update))

    def _keep(self, update: Update) -> None:
        """Keep the state that is needed between turns, too."""
        match update:
            case UsageUpdate():
                self.meters.update(update)
            case OptionsUpdate():
                self.options = update.config_options
            case CommandsUpdate():
                names = frozenset(command.name.removeprefix("/") for command in update.available_commands)
                if self._commands.done():
                    self._commands = asyncio.get_running_loop().create_future()
                self._commands.set_result(names)
            case _:
                pass

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
        if isinstance(chunk, MessageChunk):
            return self._text(chunk, text)
        return [ThinkingDelta(text, self._speaker(chunk))] if text else []

    def _text(self, chunk: MessageChunk, text: str) -> list[AgentEvent]:
        speaker = self._speaker(chunk)
        found = _PROGRAM_MESSAGE.match(text) if self._quirks.prints_as_the_model else None
        if found is not None:
            return self._program_message(found[1], text[found.end() :])
        self.error = None
        if not text:
            return []
        if speaker is None:
            self.has_answered = True
            self._follow(chunk.message_id)
        return [TextDelta(text, speaker)]

    def _program_message(self, kind: str, text: str) -> list[AgentEvent]:
        """Report a message of the program, not of the model.

        An error as the last message is the reason for the end of the turn.
        """
        if kind == "Error":
            self.error = text
        elif self._turn is not None and text.endswith("Retrying..."):
            self._turn.begin_message()  # the answer starts again
        return [Notice(text)]

    def _speaker(self, chunk: MessageChunk | ThoughtChunk) -> str | None:
        agent = self._calls.subagents.of(chunk.meta)
        if agent is None and self._quirks.subagents_are_unnamed:
            return self._calls.subagents.speaker()
        return agent

    def _follow(self, message: str | None) -> None:
        """Start a new message if the id changed; its text is then the last one."""
        if self._turn is not None and message is not None and message != self._message:
            if self._message is not None:
                self._turn.begin_message()
            self._message = message


def _plan(entries: Sequence[PlanEntry]) -> PlanChanged:
    return PlanChanged(tuple(PlanItem(entry.content, entry.status) for entry in entries))
