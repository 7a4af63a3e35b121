"""Messages of the agent and its sub-agents: text, thoughts, tool calls and what they bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from atomic.providers.claude import plan, subagents, wire
from atomic.providers.claude.usage import usage_of
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    SkillLoaded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.providers.turns import Turn

_ANSWER = "StructuredOutput"  # the way of a structured answer, not a tool of the agent
_QUIET_BLOCKS = frozenset({"redacted_thinking", "image", "document", "tool_reference"})


class _Call(msgspec.Struct, frozen=True):
    """A tool call that is not over."""

    block: wire.Block
    agent: str | None


class MessageReader:
    """Tells each piece of a message once, whether it came in pieces or whole."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self.subagents = subagents.Subagents()
        self._name_of = name_of
        self._plan = plan.Plan()
        self._turn: Turn | None = None
        self._calls: dict[str, _Call] = {}
        self._streamed: set[str] = set()  # ids of messages that came in pieces
        self._counted: set[str] = set()  # ids of messages whose usage was told
        self._began: wire.PartialBody | None = None  # the message that is coming in pieces
        self._current = ""  # the id of the agent's last message that came whole

    def begin(self, turn: Turn) -> None:
        self._turn = turn
        self._calls.clear()
        self._streamed.clear()
        self._counted.clear()
        self.subagents = subagents.Subagents()

    def finish(self) -> None:
        self._turn = None

    def leave_nothing_open(self) -> None:
        """The turn is over: so is all that was begun in it."""
        for id, call in self._calls.items():
            if call.block.name != _ANSWER:
                self._tell(ToolEnded(id, error="interrupted", agent=call.agent))
        for ended in self.subagents.interrupted():
            self._tell(ended)

    def hear(self, message: wire.Assistant | wire.User | wire.StreamEvent) -> None:
        """Tell what is in it."""
        match message:
            case wire.StreamEvent(event, None):
                self._piece(event)
            case wire.StreamEvent():
                pass  # a sub-agent's messages come whole, too
            case wire.Assistant():
                self._whole(message)
            case wire.User():
                for block in message.message.blocks:
                    if block.type == "tool_result":
                        self._came_back(block, message.tool_use_result)

    def task(self, message: wire.TaskStarted | wire.TaskEnded | wire.TaskUpdated) -> None:
        """Tell of sub-agents that begin and end."""
        match message:
            case wire.TaskStarted():
                self._tell(self.subagents.task_started(message))
            case wire.TaskEnded(task, status, summary) if status in wire.ENDED:
                error = None if status == "completed" else summary or status
                self._tell(self.subagents.task_ended(task, error=error, summary=summary))
            case wire.TaskUpdated(task, patch) if patch.status in wire.ENDED:
                error = None if patch.status == "completed" else patch.error or patch.status
                self._tell(self.subagents.task_ended(task, error=error))
            case _:
                pass

    # the agent's own, as it comes -----------------------------------------------------------------------------

    def _piece(self, event: wire.Partial) -> None:
        match event:
            case wire.Partial("message_start", wire.PartialBody() as began):
                self._began = began
                self._streamed.add(began.id)
                if self._turn is not None:
                    self._turn.begin_message()
            case wire.Partial("content_block_delta", _, wire.Delta("text_delta", text)):
                self._tell(TextDelta(text))
            case wire.Partial("content_block_delta", _, wire.Delta("thinking_delta", _, thinking)):
                self._tell(ThinkingDelta(thinking))
            case wire.Partial("message_delta", usage=usage):
                start = self._began.usage if self._began is not None else None
                self._tell(UsageReported(usage_of(start, usage)))
            case _:
                pass

    # whole messages -------------------------------------------------------------------------------------------

    def _whole(self, message: wire.Assistant) -> None:
        body, agent = message.message, message.parent_tool_use_id
        if message.error is not None:
            return  # the end of the turn, or of the sub-agent, says it
        is_new = agent is not None or body.id not in self._streamed
        if is_new:
            self._count(body, agent)
        for block in body.blocks:
            match block.type:
                case "text" if is_new and block.text:
                    self._text(block.text, body.id, agent)
                case "thinking" if is_new and block.thinking:
                    self._tell(ThinkingDelta(block.thinking, agent))
                case "text" | "thinking":
                    pass
                case "tool_use":
                    self._called(block, agent)
                case kind if kind not in _QUIET_BLOCKS and self._turn is not None:
                    self._turn.note_unknown(f"block {kind}")
                case _:
                    pass

    def _count(self, body: wire.Body, agent: str | None) -> None:
        """A message comes once for each of its blocks, with the usage of all; one of the program's own has none."""
        usage = usage_of(body.usage)
        if body.id not in self._counted and usage != Usage():
            self._counted.add(body.id)
            self._tell(UsageReported(usage, agent))

    def _text(self, text: str, message: str, agent: str | None) -> None:
        if agent is not None:
            self.subagents.said(agent, message, text)
        elif self._turn is not None and message != self._current:
            self._current = message
            self._turn.begin_message()
        self._tell(TextDelta(text, agent))

    # tools ----------------------------------------------------------------------------------------------------

    def _called(self, block: wire.Block, agent: str | None) -> None:
        if block.name in subagents.TOOLS:
            self._tell(self.subagents.called(block, agent))
            return
        self._calls[block.id] = _Call(block, agent)
        if block.name != _ANSWER:
            self._tell(ToolStarted(block.id, self._name_of(block.name), block.input, agent))

    def _came_back(self, block: wire.Block, data: Any) -> None:
        text = _plain(block.content)
        output, error = ("", text or "failed") if block.is_error else (text, None)
        call = self._calls.pop(block.tool_use_id, None)
        if call is None:
            self._tell(self.subagents.call_ended(block.tool_use_id, error=error, output=output))
        elif call.block.name != _ANSWER:
            self._tell(ToolEnded(block.tool_use_id, output, error, call.agent))
            if error is None:
                self._meant(call, data)

    def _meant(self, call: _Call, data: Any) -> None:
        """Tell what else a tool's success says."""
        if call.block.name == "Skill":
            self._tell(SkillLoaded(str(call.block.input.get("skill", "")), call.agent))
        elif call.block.name in plan.TOOLS:
            try:
                changed = self._plan.used(call.block.name, call.block.input, data)
            except msgspec.ValidationError as error:
                if self._turn is not None:
                    self._turn.note_unknown(f"{call.block.name} of another shape: {error}")
            else:
                if changed:
                    self._tell(PlanChanged(self._plan.items, call.agent))

    def _tell(self, event: AgentEvent | None) -> None:
        if event is not None and self._turn is not None:
            self._turn.tell(event)


def _plain(content: Any) -> str:
    """The text of a tool's result."""
    if isinstance(content, list):
        parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
        texts = [str(part.get("text", f"[{part.get('type')}]")) for part in parts]
        content = "\n".join(texts)
    text = str(content or "")
    return text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")
