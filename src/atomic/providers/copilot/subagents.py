"""Sub-agents: one id each, told once as a sub-agent and not as a tool besides.

Copilot calls them by the tool `task`, and gives each an id that its events carry. One that ran in the background can be
woken again by a message; it then works under the same id, without a word that it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from atomic.providers.events import AgentEvent, SubagentEnded, SubagentStarted, ToolEnded, ToolStarted

TOOL = "task"


@dataclass
class _Call:
    """A call of the tool that starts a sub-agent."""

    agent: str | None  # who called it
    input: dict[str, Any]
    started: bool = False


@dataclass
class _Subagent:
    name: str
    caller: str | None
    said: str = ""  # its last message
    at_work: bool = True


@dataclass
class Subagents:
    """All sub-agents of a session."""

    _calls: dict[str, _Call] = field(default_factory=dict[str, _Call])
    _known: dict[str, _Subagent] = field(default_factory=dict[str, _Subagent])

    def called(self, id: str, agent: str | None, input: dict[str, Any]) -> None:
        """The tool was called; what comes of it is not known yet."""
        self._calls[id] = _Call(agent, input)

    def began(self, id: str, name: str, call_id: str, parent: str | None) -> AgentEvent:
        call = self._calls.get(call_id) or _Call(parent, {})
        call.started = True
        self._known[id] = _Subagent(name, call.agent)
        return SubagentStarted(id, name, str(call.input.get("prompt", "")), call.agent)

    def woken(self, id: str, prompt: str) -> AgentEvent | None:
        """A sub-agent got a prompt; that is news only if it had ended."""
        subagent = self._known.get(id)
        if subagent is None or subagent.at_work:
            return None
        subagent.at_work = True
        return SubagentStarted(id, subagent.name, prompt, subagent.caller)

    def said(self, id: str, text: str) -> None:
        if text and id in self._known:
            self._known[id].said = text

    def ended(self, id: str, error: str | None = None) -> AgentEvent | None:
        subagent = self._known.get(id)
        if subagent is None or not subagent.at_work:
            return None
        subagent.at_work = False
        return SubagentEnded(id, subagent.said, error, subagent.caller)

    def returned(self, id: str, output: str, error: str | None) -> list[AgentEvent]:
        """The tool is over; only where no sub-agent came of it, it was a tool like any other."""
        call = self._calls.pop(id, None)
        if call is None or call.started:  # None: it began before this turn, and was cut off with its server
            return []
        return [ToolStarted(id, TOOL, call.input, call.agent), ToolEnded(id, output, error, call.agent)]

    def leave_none_open(self, why: str) -> list[AgentEvent]:
        """The turn is over: end all that are still said to be at work."""
        self._calls.clear()
        ends = [self.ended(id, why) for id in self._known]
        return [end for end in ends if end is not None]


def as_input(arguments: Any) -> dict[str, Any]:
    """The input of a tool as an object, whatever the model sent."""
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"input": arguments}
