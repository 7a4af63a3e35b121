"""The sub-agents of a turn, identified by the tool call that started them."""

from __future__ import annotations

import re

from atomic.providers.events import SubagentEnded, SubagentStarted
from atomic.providers.opencode import messages

TOOL = "task"
_RESULT = re.compile(r"<task_(?:result|error)>\n?(.*?)\n?</task_(?:result|error)>", re.DOTALL)


class Subagents:
    """Tracks the session of each sub-agent, and which ones are still active."""

    def __init__(self, root: str) -> None:
        self._agents: dict[str, str | None] = {root: None}  # by session; None: the main agent
        self._active: dict[str, str | None] = {}  # call -> parent

    def knows(self, session: str) -> bool:
        return session in self._agents

    def of(self, session: str) -> str | None:
        return self._agents[session]

    @staticmethod
    def session_of(call: messages.Part) -> str | None:
        """Return the session of a call; it is known shortly after the call starts."""
        session = call.state.metadata.get("sessionId") if call.state is not None else None
        return session if isinstance(session, str) else None

    def began(self, call: messages.Part, session: str | None, parent: str | None) -> SubagentStarted:
        if session is not None:
            self._agents[session] = call.id
        self._active[call.id] = parent
        given = call.state.input if call.state is not None else {}
        name = given.get("subagent_type") or "general"
        task = given.get("prompt") or ""
        return SubagentStarted(call.id, str(name), str(task), agent=parent)

    def ended(self, call: messages.Part) -> SubagentEnded | None:
        if call.state is None or call.id not in self._active:
            return None
        parent = self._active.pop(call.id)
        if call.state.status == "error":
            return SubagentEnded(call.id, "", call.state.error or "failed", agent=parent)
        found = _RESULT.search(call.state.output)
        return SubagentEnded(call.id, found[1] if found else call.state.output, agent=parent)

    def interrupted(self) -> list[SubagentEnded]:
        """End all active sub-agents at the end of the turn."""
        left = self._active
        self._active = {}
        return [SubagentEnded(id, "", "interrupted", agent=parent) for id, parent in left.items()]
