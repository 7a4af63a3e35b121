"""Translate parts of messages into events: text, thinking, tool calls, sub-agents.

No event is emitted twice, and none is lost after a gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from atomic.providers.events import (
    AgentEvent,
    SkillLoaded,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    Usage,
    UsageReported,
)
from atomic.providers.opencode import messages
from atomic.providers.opencode.subagents import TOOL, Subagents
from atomic.providers.tools import given_name

_SKILL = "skill"
_OVERLAP = 256  # characters of a tool's output by which its continuation is found


@dataclass
class _Text:
    is_thinking: bool
    agent: str | None
    emitted: int = 0  # characters
    has_gap: bool = False  # part of it was missed; the rest is emitted when complete


@dataclass
class _Tool:
    is_over: bool = False
    output: str = ""  # as far as it was emitted


class MessageReader:
    """Emits the new content of each part of a message."""

    def __init__(
        self,
        emit: Callable[[AgentEvent], None],
        subagents: Subagents,
        adopt: Callable[[str], None],
        *,
        has_own_tools: bool = False,
    ) -> None:
        self._has_own_tools = has_own_tools
        self._emit = emit
        self._subagents = subagents
        self._adopt = adopt
        self._texts: dict[str, _Text] = {}
        self._tools: dict[str, _Tool] = {}
        self._steps: set[str] = set()

    def note_gap(self) -> None:
        """Note that open texts may miss a piece, so later pieces cannot be appended."""
        for text in self._texts.values():
            text.has_gap = True

    def take(self, part: messages.Part, agent: str | None) -> None:
        match part.type:
            case "text" | "reasoning":
                text = self._texts.setdefault(part.id, _Text(part.type == "reasoning", agent))
                self._emit_text(text, part.text[text.emitted :])
            case "tool" if part.state is not None:
                self._tool(part, part.state, agent)
            case _:
                pass

    def take_piece(self, piece: messages.Delta) -> None:
        """Emit a piece of a streamed text."""
        text = self._texts.get(piece.part)
        if text is not None and piece.field == "text" and not text.has_gap:
            self._emit_text(text, piece.delta)

    def take_step(self, part: messages.Part, agent: str | None) -> bool:
        """Emit the usage of one model call and return whether it is new."""
        if part.id in self._steps:
            return False
        self._steps.add(part.id)
        tokens = part.tokens
        usage = Usage(tokens.read, tokens.written, int(tokens.cache.read), part.cost)
        self._emit(UsageReported(usage, agent=agent))
        return True

    def _emit_text(self, text: _Text, new: str) -> None:
        if new:
            text.emitted += len(new)
            kind = ThinkingDelta if text.is_thinking else TextDelta
            self._emit(kind(new, agent=text.agent))

    def _tool(self, part: messages.Part, state: messages.ToolState, agent: str | None) -> None:
        if part.tool == TOOL:
            self._subagent(part, state, agent)
            return
        tool = self._tools.get(part.id)
        if state.status == "pending" or (tool is not None and tool.is_over):
            return
        if tool is None:
            tool = self._tools[part.id] = _Tool()
            name = given_name(part.tool) if self._has_own_tools else part.tool
            self._emit(ToolStarted(part.id, name, state.input, agent=agent))
        if state.status == "running":
            self._output(part.id, tool, state, agent)
        else:
            tool.is_over = True
            failed = state.status == "error"
            if part.tool == _SKILL and not failed:
                self._emit(SkillLoaded(str(state.input.get("name", "")), agent=agent))
            error = (state.error or "failed") if failed else None
            self._emit(ToolEnded(part.id, state.output, error, agent=agent))

    def _output(self, id: str, tool: _Tool, state: messages.ToolState, agent: str | None) -> None:
        """Emit the new output of a running tool.

        OpenCode reports the whole output, or only the end of a long one.
        """
        output = state.metadata.get("output")
        if not isinstance(output, str) or output == tool.output:
            return
        if output.startswith(tool.output):
            start = len(tool.output)
        else:
            known = tool.output[-_OVERLAP:]
            at = output.rfind(known) if known else -1
            start = at + len(known) if at >= 0 else 0
        tool.output = output
        if new := output[start:]:
            self._emit(ToolOutput(id, new, agent=agent))

    def _subagent(self, part: messages.Part, state: messages.ToolState, agent: str | None) -> None:
        tool = self._tools.get(part.id)
        session = self._subagents.session_of(part)
        is_over = state.status in ("completed", "error")
        if tool is None and (session is not None or is_over):
            tool = self._tools[part.id] = _Tool()
            if session is not None:
                self._adopt(session)
            self._emit(self._subagents.began(part, session, agent))
        if tool is not None and is_over and not tool.is_over:
            tool.is_over = True
            if ended := self._subagents.ended(part):
                self._emit(ended)
