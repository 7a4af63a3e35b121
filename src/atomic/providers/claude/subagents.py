"""The sub-agents of a turn. Each is known by the tool call that began it, whatever else the program calls it."""

from __future__ import annotations

from dataclasses import dataclass

from atomic.providers.claude.wire import Block, TaskStarted
from atomic.providers.events import SubagentEnded, SubagentStarted

TOOLS = frozenset({"Agent", "Task"})
_USUAL = "general-purpose"


@dataclass
class _Subagent:
    parent: str | None
    in_background: bool = False
    message: str = ""  # the id of its last one
    text: str = ""  # of its last message


class Subagents:
    """Who began, who is still at work."""

    def __init__(self) -> None:
        self._at_work: dict[str, _Subagent] = {}
        self._over: set[str] = set()
        self._by_task: dict[str, str] = {}  # a task's id -> the call that began it

    def __contains__(self, id: str) -> bool:
        return id in self._at_work or id in self._over

    @property
    def at_work(self) -> list[str]:
        return list(self._at_work)

    def of_task(self, task: str | None) -> str | None:
        """The sub-agent that does a task; None if that is the agent itself."""
        return self._by_task.get(task or "")

    def called(self, call: Block, parent: str | None) -> SubagentStarted:
        self._at_work[call.id] = _Subagent(parent)
        name, task = call.input.get("subagent_type") or _USUAL, call.input.get("prompt") or ""
        return SubagentStarted(call.id, str(name), str(task), agent=parent)

    def task_started(self, task: TaskStarted) -> SubagentStarted | None:
        """A task of one that was called, or, if the program began one by itself or again, its start."""
        if task.task_type != "local_agent":
            return None
        id = self._by_task[task.task_id] = task.tool_use_id or task.task_id
        known = self._at_work.get(id)
        if known is not None:
            known.in_background = task.is_backgrounded
            return None
        self._over.discard(id)
        self._at_work[id] = _Subagent(None, task.is_backgrounded)
        return SubagentStarted(id, task.subagent_type or _USUAL, task.prompt or "")

    def said(self, id: str, message: str, text: str) -> None:
        one = self._at_work.get(id)
        if one is not None:
            one.text = one.text + text if message == one.message else text
            one.message = message

    def task_ended(self, task: str, *, error: str | None, summary: str = "") -> SubagentEnded | None:
        id = self._by_task.get(task)
        return self._end(id, error, summary) if id is not None else None

    def call_ended(self, id: str, *, error: str | None, output: str) -> SubagentEnded | None:
        """The tool call came back; one in the background then only begins, unless it could not."""
        one = self._at_work.get(id)
        if one is None or (one.in_background and error is None):
            return None
        return self._end(id, error, output)

    def interrupted(self) -> list[SubagentEnded]:
        """All that are still at work when the turn is over."""
        return [one for id in self.at_work if (one := self._end(id, "interrupted", ""))]

    def _end(self, id: str, error: str | None, text: str) -> SubagentEnded | None:
        one = self._at_work.pop(id, None)
        if one is None:
            return None
        self._over.add(id)
        said = one.text or ("" if error else text)
        return SubagentEnded(id, said, error, agent=one.parent)
