"""Translate messages of the agent and its sub-agents: text, thinking, tool calls, plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from atomic.providers.claude import messages, subagents
from atomic.providers.claude.messages import Tokens
from atomic.providers.events import (
    AgentEvent,
    PlanChanged,
    PlanItem,
    SkillLoaded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.providers.tools import given_name
from atomic.providers.turn import Turn

_PLAN_TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList"})
_ANSWER = "StructuredOutput"  # carries a structured answer, not a tool for users
_IGNORED_BLOCKS = frozenset({"redacted_thinking", "image", "document", "tool_reference"})


class _Todo(msgspec.Struct, frozen=True):
    content: str
    status: str = "pending"


class _Todos(msgspec.Struct, frozen=True):
    todos: list[_Todo]


class _Task(msgspec.Struct, frozen=True):
    id: str
    subject: str
    status: str = "pending"


class _Created(msgspec.Struct, frozen=True):
    task: _Task


class _Listed(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class _Update(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    subject: str | None = None
    status: str | None = None


class _Plan:
    """The agent's to-do list; `TodoWrite` replaces it, the task tools change single lines."""

    def __init__(self) -> None:
        self._lines: dict[str, PlanItem] = {}

    @property
    def items(self) -> tuple[PlanItem, ...]:
        return tuple(self._lines.values())

    def used(self, tool: str, input: Mapping[str, Any], result: Any) -> bool:
        """Apply a successful call and return whether the list changed.

        Raise msgspec.ValidationError for an unknown shape.
        """
        before = self.items
        match tool:
            case "TodoWrite":
                todos = msgspec.convert(input, _Todos).todos
                self._lines = {str(at): PlanItem(one.content, one.status) for at, one in enumerate(todos)}
            case "TaskCreate":
                self._put(msgspec.convert(result, _Created).task)
            case "TaskList":
                self._lines.clear()
                for task in msgspec.convert(result, _Listed).tasks:
                    self._put(task)
            case _:
                update = msgspec.convert(input, _Update)
                line = self._lines.get(update.task_id)
                if update.status == "deleted":
                    self._lines.pop(update.task_id, None)
                elif line is not None:
                    self._lines[update.task_id] = PlanItem(update.subject or line.text, update.status or line.status)
        return self.items != before

    def _put(self, task: _Task) -> None:
        self._lines[task.id] = PlanItem(task.subject, task.status)


class _Call(msgspec.Struct, frozen=True):
    """A running tool call."""

    block: messages.Block
    agent: str | None


class MessageReader:
    """Emits each part of a message once, whether it was streamed or came as a whole."""

    def __init__(self) -> None:
        self.subagents = subagents.Subagents()
        self._plan = _Plan()
        self._turn: Turn | None = None
        self._calls: dict[str, _Call] = {}
        self._streamed: set[str] = set()  # ids of streamed messages
        self._counted: set[str] = set()  # ids of messages whose usage was reported
        self._began: messages.PartialBody | None = None  # the message being streamed
        self._current = ""  # id of the agent's last whole message

    def begin(self, turn: Turn) -> None:
        self._turn = turn
        self._calls.clear()
        self._streamed.clear()
        self._counted.clear()
        self.subagents = subagents.Subagents()

    def finish(self) -> None:
        self._turn = None

    def end_all(self) -> None:
        """Emit the end of every tool call and sub-agent that is still open."""
        for id, call in self._calls.items():
            if call.block.name != _ANSWER:
                self._emit(ToolEnded(id, error="interrupted", agent=call.agent))
        for ended in self.subagents.interrupted():
            self._emit(ended)

    def receive(self, message: messages.Assistant | messages.User | messages.StreamEvent) -> None:
        """Emit the events of a message."""
        match message:
            case messages.StreamEvent(event, None):
                self._piece(event)
            case messages.StreamEvent():
                pass  # a sub-agent's messages also come as a whole
            case messages.Assistant():
                self._whole(message)
            case messages.User():
                for block in message.message.blocks:
                    if block.type == "tool_result":
                        self._ended(block, message.tool_use_result)

    def task(self, message: messages.TaskStarted | messages.TaskEnded | messages.TaskUpdated) -> None:
        """Emit starts and ends of sub-agents."""
        match message:
            case messages.TaskStarted():
                self._emit(self.subagents.task_started(message))
            case messages.TaskEnded(task, status, summary) if status in messages.ENDED:
                error = None if status == "completed" else summary or status
                self._emit(self.subagents.task_ended(task, error=error, summary=summary))
            case messages.TaskUpdated(task, patch) if patch.status in messages.ENDED:
                error = None if patch.status == "completed" else patch.error or patch.status
                self._emit(self.subagents.task_ended(task, error=error))
            case _:
                pass

    # Streamed messages

    def _piece(self, event: messages.Partial) -> None:
        match event:
            case messages.Partial("message_start", messages.PartialBody() as began):
                self._began = began
                self._streamed.add(began.id)
                if self._turn is not None:
                    self._turn.begin_message()
            case messages.Partial("content_block_delta", _, messages.Delta("text_delta", text)):
                self._emit(TextDelta(text))
            case messages.Partial("content_block_delta", _, messages.Delta("thinking_delta", _, thinking)):
                self._emit(ThinkingDelta(thinking))
            case messages.Partial("message_delta", usage=usage):
                start = self._began.usage if self._began is not None else None
                self._emit(UsageReported(usage_of(start, usage)))
            case _:
                pass

    # Whole messages

    def _whole(self, message: messages.Assistant) -> None:
        body = message.message
        agent = message.parent_tool_use_id
        if message.error is not None:
            return  # the end of the turn or sub-agent reports it
        is_new = agent is not None or body.id not in self._streamed
        if is_new:
            self._count(body, agent)
        for block in body.blocks:
            match block.type:
                case "text" if is_new and block.text:
                    self._text(block.text, body.id, agent)
                case "thinking" if is_new and block.thinking:
                    self._emit(ThinkingDelta(block.thinking, agent))
                case "text" | "thinking":
                    pass
                case "tool_use":
                    self._called(block, agent)
                case kind if kind not in _IGNORED_BLOCKS and self._turn is not None:
                    self._turn.note_unknown(f"block {kind}")
                case _:
                    pass

    def _count(self, body: messages.Body, agent: str | None) -> None:
        """Emit the usage once: a message comes once per block, each time with the usage
        of all.
        """
        usage = usage_of(body.usage)
        if body.id not in self._counted and usage != Usage():
            self._counted.add(body.id)
            self._emit(UsageReported(usage, agent))

    def _text(self, text: str, message: str, agent: str | None) -> None:
        if agent is not None:
            self.subagents.add_text(agent, message, text)
        elif self._turn is not None and message != self._current:
            self._current = message
            self._turn.begin_message()
        self._emit(TextDelta(text, agent))

    # Tools

    def _called(self, block: messages.Block, agent: str | None) -> None:
        if block.name in subagents.TOOLS:
            self._emit(self.subagents.called(block, agent))
            return
        self._calls[block.id] = _Call(block, agent)
        if block.name != _ANSWER:
            self._emit(ToolStarted(block.id, given_name(block.name), block.input, agent))

    def _ended(self, block: messages.Block, data: Any) -> None:
        text = _plain(block.content)
        output = "" if block.is_error else text
        error = text or "failed" if block.is_error else None
        call = self._calls.pop(block.tool_use_id, None)
        if call is None:
            self._emit(self.subagents.call_ended(block.tool_use_id, error=error, output=output))
        elif call.block.name != _ANSWER:
            self._emit(ToolEnded(block.tool_use_id, output, error, call.agent))
            if error is None:
                self._emit_effects(call, data)

    def _emit_effects(self, call: _Call, data: Any) -> None:
        """Emit a loaded skill or a changed plan after a tool succeeded."""
        if call.block.name == "Skill":
            self._emit(SkillLoaded(str(call.block.input.get("skill", "")), call.agent))
        elif call.block.name in _PLAN_TOOLS:
            try:
                changed = self._plan.used(call.block.name, call.block.input, data)
            except msgspec.ValidationError as error:
                if self._turn is not None:
                    self._turn.note_unknown(f"{call.block.name} of an unknown shape: {error}")
            else:
                if changed:
                    self._emit(PlanChanged(self._plan.items, call.agent))

    def _emit(self, event: AgentEvent | None) -> None:
        if event is not None and self._turn is not None:
            self._turn.emit(event)


def _plain(content: Any) -> str:
    """Return the text of a tool's result."""
    if isinstance(content, list):
        parts = [cast("dict[str, Any]", part) for part in cast("list[Any]", content) if isinstance(part, dict)]
        texts = [str(part.get("text", f"[{part.get('type')}]")) for part in parts]
        content = "\n".join(texts)
    text = str(content or "")
    return text.removeprefix("<tool_use_error>").removesuffix("</tool_use_error>")


def usage_of(start: Tokens | None, end: Tokens | None = None) -> Usage:
    """Return the usage of one model call: reported at its start, corrected at its end."""
    start = start or Tokens()
    end = end or Tokens()
    read = _newer(start.cache_read_input_tokens, end.cache_read_input_tokens)
    written = _newer(start.cache_creation_input_tokens, end.cache_creation_input_tokens)
    return Usage(
        input=_newer(start.input_tokens, end.input_tokens) + read + written,
        output=_newer(start.output_tokens, end.output_tokens),
        cached=read,
    )


def _newer(before: int | None, after: int | None) -> int:
    return (before if after is None else after) or 0
