"""The sub-agents of a turn, identified by the tool call that started them."""

from __future__ import annotations

from dataclasses import dataclass

from atomic.providers.claude.messages import Block, TaskStarted
from atomic.providers.events import SubagentEnded, SubagentStarted

TOOLS = frozenset({"Agent", "Task"})
_DEFAULT = "general-purpose"


@dataclass
class _Subagent:
    parent: str | None
    in_background: bool = False
    message: str = ""  # id of its last message
    text: str = ""  # the last message


class Subagents:
    """Tracks which sub-agents have started and which are still active."""

    def __init__(self) -> None:
        self._active: dict[str, _Subagent] = {}
        self._over: set[str] = set()
        self._by_task: dict[str, str] = {}  # task id -> tool call

    def __contains__(self, id: str) -> bool:
        return id in self._active or id in self._over

    @property
    def active(self) -> list[str]:
        return list(self._active)

    def of_task(self, task: str | None) -> str | None:
        """Return the sub-agent of a task; None for the main agent."""
        return self._by_task.get(task or "")

    def called(self, call: Block, parent: str | None) -> SubagentStarted:
        self._active[call.id] = _Subagent(parent)
        name = call.input.get("subagent_type") or _DEFAULT
        task = call.input.get("prompt") or ""
        return SubagentStarted(call.id, str(name), str(task), agent=parent)

    def task_started(self, task: TaskStarted) -> SubagentStarted | None:
        """Note the task of a call.

        Return a start if the program began it without a call.
        """
        if task.task_type != "local_agent":
            return None
        id = self._by_task[task.task_id] = task.tool_use_id or task.task_id
        known = self._active.get(id)
        if known is not None:
            known.in_background = task.is_backgrounded
            return None
        self._over.discard(id)
        self._active[id] = _Subagent(None, task.is_backgrounded)
        return SubagentStarted(id, task.subagent_type or _DEFAULT, task.prompt or "")

    def add_text(self, id: str, message: str, text: str) -> None:
        one = self._active.get(id)
        if one is not None:
            one.text = one.text + text if message == one.message else text
            one.message = message

    def task_ended(self, task: str, *, error: str | None, summary: str = "") -> SubagentEnded | None:
        id = self._by_task.get(task)
        return self._end(id, error, summary) if id is not None else None

    def call_ended(self, id: str, *, error: str | None, output: str) -> SubagentEnded | None:
        """Note the end of a call.

        A sub-agent in the background continues unless it failed.
        """
        one = self._active.get(id)
        if one is None or (one.in_background and error is None):
            return None
        return self._end(id, error, output)

    def interrupted(self) -> list[SubagentEnded]:
        """End all active sub-agents at the end of the turn."""
        return [one for id in self.active if (one := self._end(id, "interrupted", ""))]

    def _end(self, id: str, error: str | None, text: str) -> SubagentEnded | None:
        one = self._active.pop(id, None)
        if one is None:
            return None
        self._over.add(id)
        if error:
            text = ""
        return SubagentEnded(id, one.text or text, error, agent=one.parent)
