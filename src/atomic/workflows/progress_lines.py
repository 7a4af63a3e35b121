"""The lines of `progress.txt`: each names the task, the attempt and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atomic.providers.heading import attempt_of
from atomic.sessions.report import dollars, duration
from atomic.step_names import without_items
from atomic.tasks import Task, TaskStatus
from atomic.usage import Usage
from atomic.workflows.events import NodeEnded, NodeStarted, QuestionAsked, RunEnded, TasksChanged, WorkflowEvent

_ENDINGS = {"done": "ended", "interrupted": "was cut off", "limit": "was not served"}
LONGEST_TITLE = 60


class ProgressLines:
    """Makes a line of an event or a call; None where there is nothing to say to people."""

    def __init__(self) -> None:
        self._tasks: Mapping[str, Task] = {}
        self._done = ""

    def of_event(self, event: WorkflowEvent) -> str | None:
        match event:
            case NodeStarted(description=text) if text and without_items(event.node) == event.node:
                return text  # what is done for one task, or one of several, is told by its calls
            case NodeEnded(status="failed"):
                return f"{event.node}, attempt {event.attempt}: failed: {event.why}"
            case TasksChanged():
                return self._counted(event.tasks)
            case QuestionAsked():
                return f"asked: {event.question.text}"
            case RunEnded():
                return f"{event.status}: {event.said or event.reason}"
            case _:
                return None

    def _counted(self, tasks: Sequence[Task]) -> str | None:
        self._tasks = {task.id: task for task in tasks}
        done = sum(task.status in (TaskStatus.COMPLETED, TaskStatus.SKIPPED) for task in tasks)
        text = f"{done} of {len(tasks)} tasks are done"
        is_new, self._done = text != self._done, text
        return text if is_new else None

    def began(self, call: Mapping[str, Any]) -> str:
        """A call of an agent begins; `call` has the keys of a line of `agent-calls.jsonl`."""
        return f"{self._head(call)} begins ({call['provider']})"

    def ended(self, call: Mapping[str, Any]) -> str:
        """A turn of a call is over."""
        reason, usage = str(call["reason"]), call["usage"]
        result = _ENDINGS.get(reason, "failed")
        why = f": {call['error']}" if call.get("error") else ""
        facts = [duration(float(call["seconds"]))]
        if isinstance(usage, Usage) and usage.cost:
            facts.append(dollars(usage.cost))
        elif isinstance(usage, Usage) and usage.input + usage.output:
            facts.append(f"{'about ' if call.get('estimated') else ''}{usage.input + usage.output:,} tokens")
        return f"{self._head(call)} {result} ({', '.join(facts)}){why}"

    def _head(self, call: Mapping[str, Any]) -> str:
        who = call.get("role") or call["node"]
        attempt = f"attempt {attempt_of(call['prompt']) or 1}"
        task = call.get("task")
        if task is None:
            return f"{who}, {attempt}:"
        return f"{self.label(str(task))}: {attempt}, {who}"

    def label(self, task: str) -> str:
        """A task in words."""
        known = self._tasks.get(task)
        title = "" if known is None else f" {known.title[:LONGEST_TITLE]}"
        return f"task {task}{title}"
