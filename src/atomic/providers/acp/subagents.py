"""The sub-agents of a turn, identified by the tool call that started them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atomic.providers.acp.untyped import text_at
from atomic.providers.events import SubagentEnded, SubagentStarted

UNKNOWN_SUBAGENT = "sub-agents"  # several are active, and the agent does not name one

_NAMES = ("subagent_type", "agent_type")
_WRAPPED = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)


def is_subagent(input: Mapping[str, Any]) -> bool:
    """Return whether a tool with this input starts a sub-agent; agents show it no other
    way.
    """
    return "prompt" in input and any(name in input for name in _NAMES)


class Subagents:
    """The active sub-agents."""

    def __init__(self) -> None:
        self._active: dict[str, str | None] = {}  # call -> parent
        self._by_name: dict[str, str] = {}  # the agent's own id -> call

    def called(self, call: str, input: Mapping[str, Any], agent: str | None) -> SubagentStarted:
        self._active[call] = agent
        name = next(str(input[name]) for name in _NAMES if name in input)
        return SubagentStarted(call, name, str(input["prompt"]), agent)

    def returned(self, call: str, output: str, error: str | None) -> SubagentEnded:
        agent = self._active.pop(call, None)
        found = _WRAPPED.search(output)
        return SubagentEnded(call, found[1] if found else output, error, agent)

    def speaker(self) -> str | None:
        """Return the only active sub-agent as the author of a text without an author.

        With several, return UNKNOWN_SUBAGENT.
        """
        if len(self._active) > 1:
            return UNKNOWN_SUBAGENT
        return next(iter(self._active), None)

    def of(self, meta: Mapping[str, Any] | None) -> str | None:
        """Return the sub-agent of an update; None for the main agent, or if not reported."""
        if call := text_at(meta, "claudeCode", "parentToolUseId"):
            return call
        if name := text_at(meta, "github.com/copilot", "agentId"):
            return self._named(name)
        return None

    def _named(self, name: str) -> str:
        """Return its call if only one is possible, else the agent's own id."""
        if name not in self._by_name:
            free = [call for call in self._active if call not in self._by_name.values()]
            self._by_name[name] = free[0] if len(free) == 1 else name
        return self._by_name[name]
