"""Publishes the events of one run: to its host, to its logs, and to `session.json`.

The run never waits for its host. A host that reads slowly gets the text of an agent
joined into fewer events. If too many events wait, old activity of agents is dropped
from the queue and counted; the log of the session still has it. All other events are
kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from atomic.base.step_names import local_node, without_items
from atomic.base.text import duration, local_time
from atomic.base.usage import Usage, dollars
from atomic.graph import Event
from atomic.providers.events import AgentEvent, TextDelta, ThinkingDelta, ToolOutput, TurnEnded
from atomic.providers.prompt_title import attempt_of
from atomic.questions import Question
from atomic.runs.agent_calls import Caller
from atomic.runs.endings import signal_command
from atomic.runs.events import (
    AgentActivity,
    LimitReached,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    RunEnded,
    RunStarted,
    TasksChanged,
    Warning,
    WorkflowEvent,
    as_line,
)
from atomic.runs.limits import CapReached
from atomic.sessions.model import OpenQuestion
from atomic.sessions.store import Session
from atomic.tasks import Task, TaskStatus
from atomic.workflows.definition import Runnable

EventT = TypeVar("EventT", bound=WorkflowEvent)

FAILED_CALLS = ("error", "limit", "refused", "max_turns")  # reasons that `logs/errors.log` records
MOST_WAITING = 10_000  # events in the queue
LONGEST_TEXT = 1_000_000  # characters of joined text in one event
_ENDINGS = {"done": "ended", "interrupted": "was cut off", "limit": "was not served"}
LONGEST_TITLE = 60  # characters of a task's title in `progress.txt`

_SHORT_SLEEP = 10.0  # seconds, which are not worth a line

_Delta = TextDelta | ThinkingDelta | ToolOutput


class EventLog:
    """Publishes the events of the engine and the runtime of one run."""

    def __init__(self, session: Session, graph: Runnable, descriptions: Mapping[str, str]) -> None:
        self.queue = EventQueue(session.id)
        self.is_logging = True
        self.questions: dict[str, OpenQuestion] = {}
        self._session = session
        self._graph = graph
        self._descriptions = descriptions
        # By step, not by node: a node that leads to itself may start before its end is
        # reported.
        self._started: dict[str, NodeStarted] = {}
        self._log_failed = False
        self._reported_caps: set[str] = set()
        self._lines = ProgressLines()

    @property
    def running(self) -> str:
        """Return the names of the running steps, for a message."""
        return ", ".join(started.description or started.node for started in self._started.values())

    def emit(self, make: type[EventT], /, **fields: Any) -> EventT:
        """Create an event, queue it for the host, write it to the logs, and return it."""
        event = make(run=self._session.id, seq=0, time=time.time(), **fields)
        self.queue.put(event)
        if not self.is_logging:
            return event
        logs = self._session.logs
        logs.event(as_line(event))
        line = self._lines.of_event(event)
        if line is not None:
            logs.progress(line)
        if logs.failure is not None and not self._log_failed:
            self._log_failed = True
            self.warn(f"the logs of the session cannot be written: {logs.failure.strerror}")
        return event

    def warn(self, text: str, node: str = "", *, notice: bool = False) -> None:
        """Publish a message for the user."""
        self.emit(Warning, text=text, node=node, notice=notice)

    def handle_live(self, node: str, event: Event) -> None:
        """Publish the start or retry of a step, or a question."""
        match event.type:
            case "started":
                self._start_node(node, event.data["step_id"], event.data["attempt"])
            case "retrying":
                self._end_node(
                    event.data["step_id"], attempt=event.data["attempt"], status="failed", error=event.data["error"]
                )
            case "asked":
                self._ask(node, event.data)
            case "waiting":
                self._wait(node, event.data["signal"], event.data["until"])
            case _:
                pass

    def handle_step(self, node: str, step: Mapping[str, Any]) -> None:
        """Publish the end of a step, and its start if the engine did not report that."""
        step_id = step["step_id"]
        if step_id not in self._started:
            self._start_node(node, step_id, step["attempt"])
        self._end_node(
            step_id, attempt=step["attempt"], status=step["status"], error=step["error"], seconds=step["seconds"]
        )

    def handle_warning(self, node: str, data: Any) -> None:
        """Publish a warning of a node or of the engine."""
        text = str(data)
        notice = False
        if isinstance(data, Mapping):
            fields = cast("Mapping[str, Any]", data)
            text = str(fields.get("text") or fields.get("message") or dict(fields)).removeprefix(f"{node}: ")
            notice = fields.get("notice") is True
        self.warn(text, node, notice=notice)

    def handle_progress(self, data: Any) -> None:
        """Write the result of a task's attempt to `progress.txt`: its `task` and its
        `text`.
        """
        if isinstance(data, Mapping):
            fields = cast("Mapping[str, Any]", data)
            self._session.logs.progress(f"{self._lines.label(str(fields.get('task')))}: {fields.get('text')}")

    def end_nodes(self) -> None:
        """Publish the end of steps that the end of the run has cancelled."""
        for step_id, started in tuple(self._started.items()):
            self._end_node(step_id, attempt=started.attempt, status="cancelled")

    def _start_node(self, node: str, step_id: str, attempt: int) -> None:
        local = local_node(node)
        description = self._descriptions.get(node) or self._descriptions.get(local) or ""
        program = self._graph.program
        if not description and local in program.by_id:
            made = getattr(program.ops[program.by_id[local]], "node", None)
            description = "" if made is None else made.description
        self._started[step_id] = self.emit(
            NodeStarted, node=node, step_id=step_id, attempt=attempt, description=description
        )

    def _end_node(
        self, step_id: str, *, attempt: int, status: str, error: str | None = None, seconds: float | None = None
    ) -> None:
        started = self._started.pop(step_id, None)
        if started is None:
            return
        if seconds is None:
            seconds = time.time() - started.time
        self.emit(
            NodeEnded, node=started.node, step_id=step_id, attempt=attempt, description=started.description,
            status=status, seconds=round(seconds, 6), error=error,
        )  # fmt: skip

    def _ask(self, node: str, question: Question) -> None:
        labels = [option.label for option in question.options]
        self.questions[question.id] = OpenQuestion(
            question.id, question.text, labels, node, question.header, question.multi_select, question.default,
            question.returns,
        )  # fmt: skip
        self._session.save(questions=tuple(self.questions.values()))
        self.emit(QuestionAsked, question=question, node=node)

    def _wait(self, node: str, signal: str, until: float | None) -> None:
        """Publish that a step waits for a signal, or sleeps for more than a moment."""
        when = "" if until is None else f" until {local_time(until, with_zone=True)}"
        if signal:
            command = signal_command(self._session.id, signal)
            self.warn(f'waits for the signal "{signal}"{when}: {command}', node, notice=True)
        elif until is not None and until - time.time() > _SHORT_SLEEP:
            self.warn(f"sleeps{when}", node, notice=True)

    def keep_questions(self, open_ids: Collection[str]) -> None:
        """Close all questions but these.

        A cancelled branch may have asked one of them.
        """
        for id in set(self.questions).difference(open_ids):
            self.close_question(id)

    def close_question(self, id: str) -> None:
        """Remove an answered question from `session.json`."""
        if self.questions.pop(id, None) is not None:
            self._session.save(questions=tuple(self.questions.values()))

    def agent_activity(self, caller: Caller, event: AgentEvent) -> None:
        """Publish an event of an agent."""
        self.emit(AgentActivity, node=caller.node, task=caller.task, role=caller.role, event=event)

    def cap_reached(self, reached: CapReached) -> None:
        """Publish that a cap is reached.

        Once, however many turns it ends or prevents.
        """
        if reached.kind in self._reported_caps:
            return
        self._reported_caps.add(reached.kind)
        self.emit(LimitReached, kind=reached.kind, limit=reached.limit, spent=reached.spent)

    def provider_limited(self, until: float) -> None:
        """Publish that an agent is rate-limited until that Unix time."""
        self._session.save(parked_until=until)
        self.emit(LimitReached, kind="provider", limit=None, spent=None, reset_at=until)

    def call_started(self, line: Mapping[str, Any]) -> None:
        """Write the start of a call to `progress.txt`."""
        self._session.logs.progress(self._lines.began(line))

    def call_ended(self, line: Mapping[str, Any]) -> None:
        """Write the end of a call to `agent-calls.jsonl` and `progress.txt`, a failure
        to `errors.log`.
        """
        logs = self._session.logs
        logs.call(line)
        logs.progress(self._lines.ended(line))
        if line["reason"] in FAILED_CALLS:
            who = str(line["role"] or line["node"])
            if line["task"]:
                who += f" of task {line['task']}"
            why = line["error"] or "the agent gives no reason"
            logs.error(f"{line['provider']}: the call of the {who} failed ({line['reason']}): {why}")

    def save_named_sessions(self, ids: Mapping[str, Sequence[str]]) -> None:
        """Save the provider and id of each named session for a resume."""
        self._session.save(named={name: list(kept) for name, kept in ids.items()}, durable=False)


class EventQueue:
    """A queue of events with one reader. An event gets its `seq` when it is read."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._items: deque[_Item] = deque()
        self._tails: dict[tuple[Any, ...], _Item] = {}  # by speaker: the text that may still grow
        self._changed = asyncio.Event()
        self._closed = False
        self._seq = 0
        self._dropped = 0

    def put(self, event: WorkflowEvent) -> None:
        """Add an event; text of an agent joins the text before it, if that waits."""
        if isinstance(event, AgentActivity):
            self._put_activity(event)
        else:
            self._tails.clear()
            self._items.append(_Item(event))
        if len(self._items) > MOST_WAITING:
            self._drop_activity()
        self._changed.set()

    def close(self) -> None:
        """End the queue after the events that wait."""
        self._closed = True
        self._changed.set()

    async def get(self) -> WorkflowEvent | None:
        """Return the next event; None after the last one."""
        while not self._items:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        if self._dropped:
            event: WorkflowEvent = Warning(
                run=self._run, seq=0, time=self._items[0].event.time,
                text=f"{self._dropped:,} events of agents were left out: they came faster than they were read"
                " (the log has them)",
            )  # fmt: skip
            self._dropped = 0
        else:
            item = self._items.popleft()
            for key in [key for key, tail in self._tails.items() if tail is item]:
                del self._tails[key]
            event = item.joined()
        self._seq += 1
        return msgspec.structs.replace(event, seq=self._seq)

    def _put_activity(self, event: AgentActivity) -> None:
        inner = event.event
        speaker = (event.node, event.task, event.role, inner.agent)
        if not isinstance(inner, _Delta):
            for key in [key for key in self._tails if key[:4] == speaker]:
                del self._tails[key]
            self._items.append(_Item(event))
            return
        key = (*speaker, type(inner), getattr(inner, "id", None))
        tail = self._tails.get(key)
        if tail is not None:
            tail.add(inner.text)
            return
        item = _Item(event)
        self._tails[key] = item
        self._items.append(item)

    def _drop_activity(self) -> None:
        """Drop the older half of the agents' activity, except the ends of turns."""
        kept: deque[_Item] = deque()
        half = len(self._items) // 2
        for position, item in enumerate(self._items):
            event = item.event
            if position < half and isinstance(event, AgentActivity) and not isinstance(event.event, TurnEnded):
                self._dropped += 1
            else:
                kept.append(item)
        self._items = kept
        self._tails.clear()


class _Item:
    """An event in the queue, and the text that was added to it."""

    __slots__ = ("event", "pieces", "size")

    def __init__(self, event: WorkflowEvent) -> None:
        self.event = event
        self.pieces: deque[str] = deque()
        self.size = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)
        while self.size > LONGEST_TEXT and len(self.pieces) > 1:
            self.size -= len(self.pieces.popleft())

    def joined(self) -> WorkflowEvent:
        """Return the event with the added text."""
        if not self.pieces or not isinstance(self.event, AgentActivity) or not isinstance(self.event.event, _Delta):
            return self.event
        delta = msgspec.structs.replace(self.event.event, text=self.event.event.text + "".join(self.pieces))
        return msgspec.structs.replace(self.event, event=delta)


class ProgressLines:
    """Formats events and calls as lines; None if an event has no line."""

    def __init__(self) -> None:
        self._tasks: Mapping[str, Task] = {}
        self._done = ""

    def of_event(self, event: WorkflowEvent) -> str | None:
        match event:
            case RunStarted(resumed=True):
                return "the run continues; a step that was cut off begins again"
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
        """Format the start of a call.

        `call` has the keys of a line of `agent-calls.jsonl`.
        """
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
