"""The sub-agents of a turn: each is a session of its own, begun by a call of the `task` tool, whose id it carries."""

from __future__ import annotations

import re

from atomic.providers.events import SubagentEnded, SubagentStarted
from atomic.providers.opencode import wire

_RESULT = re.compile(r"<task_(?:result|error)>\n?(.*?)\n?</task_(?:result|error)>", re.DOTALL)


class Subagents:
    """Who works in which session, and who is still at work."""

    def __init__(self, root: str) -> None:
        self._agents: dict[str, str | None] = {root: None}  # by session; None: the agent itself
        self._at_work: dict[str, str | None] = {}  # by its call; for whom it works

    def knows(self, session: str) -> bool:
        return session in self._agents

    def of(self, session: str) -> str | None:
        return self._agents[session]

    @property
    def sessions(self) -> list[str]:
        return list(self._agents)

    @staticmethod
    def session_of(call: wire.Part) -> str | None:
        """The session in which a call's work is done; it is known soon after the call began."""
        session = call.state.metadata.get("sessionId") if call.state is not None else None
        return session if isinstance(session, str) else None

    def began(self, call: wire.Part, session: str | None, parent: str | None) -> SubagentStarted:
        if session is not None:
            self._agents[session] = call.id
        self._at_work[call.id] = parent
        given = call.state.input if call.state is not None else {}
        name, task = given.get("subagent_type") or "general", given.get("prompt") or ""
        return SubagentStarted(call.id, str(name), str(task), agent=parent)

    def ended(self, call: wire.Part) -> SubagentEnded | None:
        if call.state is None or call.id not in self._at_work:
            return None
        parent = self._at_work.pop(call.id)
        if call.state.status == "error":
            return SubagentEnded(call.id, "", call.state.error or "failed", agent=parent)
        found = _RESULT.search(call.state.output)
        return SubagentEnded(call.id, found[1] if found else call.state.output, agent=parent)

    def interrupted(self) -> list[SubagentEnded]:
        """All that are still at work when the turn is over."""
        left, self._at_work = self._at_work, {}
        return [SubagentEnded(id, "", "interrupted", agent=parent) for id, parent in left.items()]
