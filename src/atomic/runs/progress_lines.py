"""The lines of `progress.txt`: each names the task, the attempt and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atomic.base.step_names import without_items
from atomic.base.text import duration
from atomic.base.usage import Usage
from atomic.providers.prompt_title import attempt_of
from atomic.runs.events import NodeEnded, NodeStarted, QuestionAsked, RunEnded, TasksChanged, WorkflowEvent
from atomic.sessions.report import dollars
from atomic.tasks import Task, TaskStatus

_ENDINGS = {"done": "ended", "interrupted": "was cut off", "limit": "was not served"}
LONGEST_TITLE = 60


class ProgressLines:
    """Formats events and calls as lines; None if there is nothing to show to people."""

    def __init__(self) -> None:
        self._tasks: Mapping[str, Task] = {}
        self._done = ""

    def of_event(self, event: WorkflowEvent) -> str | None:
        match event:
            case NodeStarted(description=text) if text and without_items(event.node) == event.node:
                return text  # the calls show the work on each item of a list
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
        if text == self._done:
            return None
        self._done = text
        return text

    def began(self, call: Mapping[str, Any]) -> str:
        """Format the start of a call; `call` has the keys of a line of `agent-calls.jsonl`."""
        return f"{self._head(call)} begins ({call['provider']})"

    def ended(self, call: Mapping[str, Any]) -> str:
        """Format the end of a turn of a call."""
        usage = call["usage"]
        result = _ENDINGS.get(str(call["reason"]), "failed")
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
        """Return the id and the title of a task."""
        known = self._tasks.get(task)
        title = "" if known is None else f" {known.title[:LONGEST_TITLE]}"
        return f"task {task}{title}"
