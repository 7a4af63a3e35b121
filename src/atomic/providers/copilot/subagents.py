"""The sub-agents of a session: one id each, reported as sub-agents and not as tools.

Copilot calls them with the tool `task` and gives each an id that its events carry. A
message can wake one that ran in the background; it continues with the same id, without
a start event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from atomic.providers.events import AgentEvent, SubagentEnded, SubagentStarted, ToolEnded, ToolStarted

TOOL = "task"


@dataclass
class _Call:
    """A call of the tool that starts a sub-agent."""

    agent: str | None  # the caller
    input: dict[str, Any]
    started: bool = False


@dataclass
class _Subagent:
    name: str
    caller: str | None
    text: str = ""  # its last message
    is_active: bool = True


@dataclass
class Subagents:
    """All sub-agents of a session."""

    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    _known: dict[str, _Subagent] = field(default_factory=dict[str, _Subagent])

    def called(self, id: str, agent: str | None, input: dict[str, Any]) -> None:
        """Note a call of the tool."""
        self._calls[id] = _Call(agent, input)

    def began(self, id: str, name: str, call_id: str, parent: str | None) -> AgentEvent:
        call = self._calls.get(call_id) or _Call(parent, {})
        call.started = True
        self._known[id] = _Subagent(name, call.agent)
        return SubagentStarted(id, name, str(call.input.get("prompt", "")), call.agent)

    def woken(self, id: str, prompt: str) -> AgentEvent | None:
        """Note a prompt for a sub-agent; return a start if it had ended."""
        subagent = self._known.get(id)
        if subagent is None or subagent.is_active:
            return None
        subagent.is_active = True
        return SubagentStarted(id, subagent.name, prompt, subagent.caller)

    def add_text(self, id: str, text: str) -> None:
        if text and id in self._known:
            self._known[id].text = text

    def ended(self, id: str, error: str | None = None) -> AgentEvent | None:
        subagent = self._known.get(id)
        if subagent is None or not subagent.is_active:
            return None
        subagent.is_active = False
        return SubagentEnded(id, subagent.text, error, subagent.caller)

    def returned(self, id: str, output: str, error: str | None) -> list[AgentEvent]:
        """Return the events of a call that started no sub-agent, as of any other tool."""
        call = self._calls.pop(id, None)
        if call is None or call.started:  # None: it started before this turn, on a server that died
            return []
        return [ToolStarted(id, TOOL, call.input, call.agent), ToolEnded(id, output, error, call.agent)]

    def end_all(self, error: str) -> list[AgentEvent]:
        """End all active sub-agents at the end of the turn."""
        self._calls.clear()
        ends = [self.ended(id, error) for id in self._known]
        return [end for end in ends if end is not None]


def as_input(arguments: Any) -> dict[str, Any]:
    """Return the input of a tool as an object, whatever the model sent."""
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"input": arguments}
