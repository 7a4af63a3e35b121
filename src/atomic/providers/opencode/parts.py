"""The pieces of messages as events: nothing twice, and after a gap nothing lost."""

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
from atomic.providers.opencode import wire
from atomic.providers.opencode.subagents import Subagents
from atomic.providers.tools import given_name

TASK, _SKILL = "task", "skill"
_OVERLAP = 256  # characters of a tool's output by which its continuation is found


@dataclass
class _Text:
    is_thinking: bool
    agent: str | None
    told: int = 0  # characters
    has_gap: bool = False  # something of it was missed: the rest is told when it is complete


@dataclass
class _Tool:
    is_over: bool = False
    output: str = ""  # as far as it was told


class Parts:
    """Tells of each part what is new."""

    def __init__(
        self,
        tell: Callable[[AgentEvent], None],
        subagents: Subagents,
        adopt: Callable[[str], None],
        *,
        has_own_tools: bool = False,
    ) -> None:
        self._has_own_tools = has_own_tools
        self._tell, self._subagents, self._adopt = tell, subagents, adopt
        self._texts: dict[str, _Text] = {}
        self._tools: dict[str, _Tool] = {}
        self._steps: set[str] = set()

    def missed_something(self) -> None:
        """What is open now may have a hole: pieces that come from now on cannot be put behind it."""
        for text in self._texts.values():
            text.has_gap = True

    def take(self, part: wire.Part, agent: str | None) -> None:
        match part.type:
            case "text" | "reasoning":
                self._text(part, agent)
            case "tool" if part.state is not None:
                self._tool(part, part.state, agent)
            case _:
                pass

    def take_piece(self, piece: wire.Delta) -> None:
        """A piece of a text that is being said."""
        text = self._texts.get(piece.part)
        if text is not None and piece.field == "text" and not text.has_gap:
            self._say(text, piece.delta)

    def take_step(self, part: wire.Part, agent: str | None) -> bool:
        """What one call of the model cost; whether that is new."""
        if part.id in self._steps:
            return False
        self._steps.add(part.id)
        tokens = part.tokens
        usage = Usage(tokens.read, tokens.written, int(tokens.cache.read), part.cost)
        self._tell(UsageReported(usage, agent=agent))
        return True

    def _text(self, part: wire.Part, agent: str | None) -> None:
        text = self._texts.setdefault(part.id, _Text(part.type == "reasoning", agent))
        self._say(text, part.text[text.told :])

    def _say(self, text: _Text, words: str) -> None:
        if words:
            text.told += len(words)
            kind = ThinkingDelta if text.is_thinking else TextDelta
            self._tell(kind(words, agent=text.agent))

    def _tool(self, part: wire.Part, state: wire.ToolState, agent: str | None) -> None:
        if part.tool == TASK:
            self._subagent(part, state, agent)
            return
        tool = self._tools.get(part.id)
        if state.status == "pending" or (tool is not None and tool.is_over):
            return
        if tool is None:
            tool = self._tools[part.id] = _Tool()
            name = given_name(part.tool) if self._has_own_tools else part.tool
            self._tell(ToolStarted(part.id, name, state.input, agent=agent))
        if state.status == "running":
            self._output(part.id, tool, state, agent)
        else:
            tool.is_over = True
            self._ended(part, state, agent)

    def _ended(self, part: wire.Part, state: wire.ToolState, agent: str | None) -> None:
        failed = state.status == "error"
        if part.tool == _SKILL and not failed:
            self._tell(SkillLoaded(str(state.input.get("name", "")), agent=agent))
        error = (state.error or "it failed") if failed else None
        self._tell(ToolEnded(part.id, state.output, error, agent=agent))

    def _output(self, id: str, tool: _Tool, state: wire.ToolState, agent: str | None) -> None:
        """What a running tool has said since; OpenCode shows all of it, or of a long one the end."""
        said = state.metadata.get("output")
        if not isinstance(said, str) or said == tool.output:
            return
        start = len(tool.output) if said.startswith(tool.output) else _behind(said, tool.output[-_OVERLAP:])
        tool.output = said
        if news := said[start:]:
            self._tell(ToolOutput(id, news, agent=agent))

    def _subagent(self, part: wire.Part, state: wire.ToolState, agent: str | None) -> None:
        tool, session = self._tools.get(part.id), self._subagents.session_of(part)
        is_over = state.status in ("completed", "error")
        if tool is None and (session is not None or is_over):
            tool = self._tools[part.id] = _Tool()
            if session is not None:
                self._adopt(session)
            self._tell(self._subagents.began(part, session, agent))
        if tool is not None and is_over and not tool.is_over:
            tool.is_over = True
            if ended := self._subagents.ended(part):
                self._tell(ended)


def _behind(text: str, known: str) -> int:
    """Where that which is known ends in a text; its beginning if it is not there."""
    at = text.rfind(known) if known else -1
    return at + len(known) if at >= 0 else 0
