"""The sub-agents of a turn. Each is known by the tool call that began it, whatever else the agent calls it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atomic.providers.acp.loose import word_in
from atomic.providers.events import SubagentEnded, SubagentStarted

SOMEONE = "sub-agents"  # several are at work, and the agent does not say which of them speaks

_NAMES = ("subagent_type", "agent_type")
_WRAPPED = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)


def is_subagent(input: Mapping[str, Any]) -> bool:
    """Whether a tool that is called with this input starts a sub-agent; no agent says it otherwise."""
    return "prompt" in input and any(name in input for name in _NAMES)


class Subagents:
    """Who is at work."""

    def __init__(self) -> None:
        self._at_work: dict[str, str | None] = {}  # by its call -> who called
        self._by_name: dict[str, str] = {}  # the agent's own id for it -> its call

    def called(self, call: str, input: Mapping[str, Any], agent: str | None) -> SubagentStarted:
        self._at_work[call] = agent
        name = next(str(input[name]) for name in _NAMES if name in input)
        return SubagentStarted(call, name, str(input["prompt"]), agent)

    def returned(self, call: str, output: str, error: str | None) -> SubagentEnded:
        agent = self._at_work.pop(call, None)
        found = _WRAPPED.search(output)
        return SubagentEnded(call, found[1] if found else output, error, agent)

    def speaker(self) -> str | None:
        """Who speaks, if nobody says so: while sub-agents are at work, it is one of them."""
        if len(self._at_work) > 1:
            return SOMEONE
        return next(iter(self._at_work), None)

    def of(self, meta: Mapping[str, Any] | None) -> str | None:
        """The sub-agent that an update belongs to, where the agent tells; None: the agent itself."""
        if call := word_in(meta, "claudeCode", "parentToolUseId"):
            return call
        if name := word_in(meta, "github.com/copilot", "agentId"):
            return self._named(name)
        return None

    def _named(self, name: str) -> str:
        """Its call, if there is but one that it can be; else the agent's own name for it has to do."""
        if name not in self._by_name:
            free = [call for call in self._at_work if call not in self._by_name.values()]
            self._by_name[name] = free[0] if len(free) == 1 else name
        return self._by_name[name]
