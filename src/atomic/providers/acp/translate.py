"""What the agent tells of a session, in our vocabulary."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.acp.known import Ways
from atomic.providers.acp.loose import as_object, read, word_in
from atomic.providers.acp.messages import (
    PASSED_OVER,
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
)
from atomic.providers.acp.meters import Meters
from atomic.providers.acp.toolcalls import ToolCalls
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
from atomic.providers.turns import Turn

_ASIDE = re.compile(r"(Info|Warning|Error): (?=\S)")


class Translator:
    """Hears the updates of one session and tells its turns. Between two turns only the state is kept."""

    def __init__(self, ways: Ways, meters: Meters, *, has_own_tools: bool = False) -> None:
        self.meters = meters
        self.options: Sequence[ConfigOption] = ()
        self.error: str | None = None  # that the agent told as text; the last word of the turn counts
        self.has_spoken = False  # the model has said something in this turn
        self._ways, self._has_own_tools = ways, has_own_tools
        self._session = ""
        self._commands: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._turn: Turn | None = None
        self._calls = ToolCalls(ways, has_own_tools=has_own_tools)
        self._message: str | None = None
        self.moved = asyncio.get_running_loop().time()  # when it last heard something, and when the work went on
        self.worked = self.moved

    def program_started(self, session: str, options: Sequence[ConfigOption]) -> None:
        """A program has begun, or taken up, the session."""
        self._session, self.options = session, options
        self.meters.program_started()

    async def known_commands(self) -> frozenset[str]:
        """The agent's own commands, when it has told them."""
        return await asyncio.shield(self._commands)

    def begin(self, turn: Turn) -> None:
        self._turn, self._calls = turn, ToolCalls(self._ways, has_own_tools=self._has_own_tools)
        self._message, self.error, self.has_spoken = None, None, False

    def finish(self, why: str | None = None) -> None:
        """The turn is over; what is still open ends with it, for that reason."""
        self.tell(self._calls.leave_none_open(why or "the turn is over"))
        self._turn = None

    def tell(self, events: Sequence[AgentEvent]) -> None:
        for event in events:
            if self._turn is None or self._turn.over:
                return
            if isinstance(event, SubagentStarted) and event.agent is None:
                self._turn.begin_message()  # as behind a tool, what now comes is another message
            if not isinstance(event, (TextDelta, ThinkingDelta, Notice)):
                self.worked = asyncio.get_running_loop().time()
            self._turn.tell(event)

    def note_unknown(self, kind: str) -> None:
        if self._turn is not None:
            self._turn.note_unknown(kind)

    def allowed(self, call: str) -> None:
        """The agent asked whether a tool may run."""
        self.tell(self._calls.allowed(call))

    def hear(self, params: Mapping[str, Any]) -> None:
        """One update, as it came."""
        self.moved = asyncio.get_running_loop().time()
        if self._turn is not None and params.get("sessionId") != self._session:
            self.note_unknown("an update of another session")
            return
        update = as_object(params.get("update"))
        kind = word_in(update, "sessionUpdate")
        if kind in UPDATES:
            self._take(kind, update)
        elif kind not in PASSED_OVER:
            self.note_unknown(kind[:80])

    def _take(self, kind: str, raw: Mapping[str, Any]) -> None:
        try:
            update = read(raw, UPDATES[kind])
        except msgspec.ValidationError:
            self.note_unknown(f"{kind}, of another shape")
            return
        self._keep(update)
        if self._turn is not None:
            self.tell(self._news(update))

    def _keep(self, update: Update) -> None:
        """What is worth knowing also between two turns."""
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

    def _news(self, update: Update) -> list[AgentEvent]:
        match update:
            case MessageChunk() | ThoughtChunk():
                return self._words(update)
            case ToolCall():
                return self._calls.heard(update)
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
            case _:  # what was kept
                return []

    def _words(self, chunk: MessageChunk | ThoughtChunk) -> list[AgentEvent]:
        text = chunk.content.text if chunk.content.type == "text" else None
        if text is None:
            self.note_unknown(f"a message with {chunk.content.type}")
            return []
        if isinstance(chunk, MessageChunk):
            return self._said(chunk, text)
        return [ThinkingDelta(text, self._speaker(chunk))] if text else []

    def _said(self, chunk: MessageChunk, text: str) -> list[AgentEvent]:
        speaker = self._speaker(chunk)
        aside = _ASIDE.match(text) if self._ways.speaks_for_the_model else None
        if aside is not None:
            return self._spoken_aside(aside[1], text[aside.end() :])
        self.error = None
        if not text:
            return []
        if speaker is None:
            self.has_spoken = True
            self._follow(chunk.message_id)
        return [TextDelta(text, speaker)]

    def _spoken_aside(self, kind: str, text: str) -> list[AgentEvent]:
        """Words of the program, not of the model. An error as the very last word is why the turn ended."""
        if kind == "Error":
            self.error = text
        elif self._turn is not None and text.endswith("Retrying..."):
            self._turn.begin_message()  # the answer begins again
        return [Notice(text)]

    def _speaker(self, chunk: MessageChunk | ThoughtChunk) -> str | None:
        told = self._calls.subagents.of(chunk.meta)
        if told is None and self._ways.subagents_speak_unnamed:
            return self._calls.subagents.speaker()
        return told

    def _follow(self, message: str | None) -> None:
        """See whether another message has begun; its text is then the last one."""
        if self._turn is not None and message is not None and message != self._message:
            if self._message is not None:
                self._turn.begin_message()
            self._message = message


def _plan(entries: Sequence[PlanEntry]) -> PlanChanged:
    return PlanChanged(tuple(PlanItem(entry.content, entry.status) for entry in entries))
