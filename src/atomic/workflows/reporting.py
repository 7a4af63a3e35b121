"""What a run tells: each event to its host and to its log, and to `session.json` what others must know."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from atomic.graph import CompiledGraph, Event, NodeKind
from atomic.providers.events import AgentEvent
from atomic.questions import Question
from atomic.sessions.model import Cost, OpenQuestion
from atomic.sessions.store import Session
from atomic.step_names import local_node
from atomic.tasks import Task, TaskList
from atomic.tasks.file import AnyPath
from atomic.workflows.capabilities import all_nodes
from atomic.workflows.clean_tasks import CleanTasks
from atomic.workflows.door import Caller
from atomic.workflows.events import (
    AgentActivity,
    LimitReached,
    NodeEnded,
    NodeStarted,
    QuestionAsked,
    TasksChanged,
    Warning,
    as_line,
)
from atomic.workflows.governor import CapReached
from atomic.workflows.kept_tasks import KeptTasks
from atomic.workflows.ledger import Spent
from atomic.workflows.news import News
from atomic.workflows.own_changes import OwnChanges
from atomic.workflows.progress_lines import ProgressLines

FAILED_CALLS = ("error", "limit", "refused", "max_turns")  # reasons of calls that are in `logs/errors.log`


class Report:
    """Tells what the engine and the runtime of one run say."""

    def __init__(
        self,
        session: Session,
        graph: CompiledGraph[Any],
        descriptions: Mapping[str, str],
        spent: Callable[[], Spent],
        own: OwnChanges,
        tasks: KeptTasks,
    ) -> None:
        self.news = News(session.id)
        self.is_logging = True
        self._session, self._graph, self._described, self._spent = session, graph, descriptions, spent
        self._own = own
        self._kept_tasks = tasks
        self._clean_tasks = CleanTasks(session.dir, session.redactor)
        self._open: dict[str, NodeStarted] = {}  # by step: a node that goes to itself may begin before its end is told
        self.questions: dict[str, OpenQuestion] = {}
        self._tasks: Sequence[Task] = ()
        self._planned: Sequence[Task] | None = None  # the list of the state as it was heard last
        self._is_looped = self._is_worked_on = False  # a loop works on a list; on that in the session's folder
        self._log_failed = False
        self._told_caps: set[str] = set()
        self._lines = ProgressLines()

    def cost(self) -> Cost:
        """What was spent so far."""
        spent = self._spent()
        return Cost(spent.known_usd, spent.input_tokens, spent.output_tokens)

    def end_nodes(self) -> None:
        """The run is over: what was at work was cut."""
        for step_id in tuple(self._open):
            self._end_node(step_id, attempt=self._open[step_id].attempt, status="cancelled")

    def tell(self, news: Any, /, **facts: Any) -> Any:
        """Tell the host and the log; the event."""
        event = news(run=self._session.id, seq=0, time=time.time(), **facts)
        self.news.put(event)
        if not self.is_logging:
            return event
        self._session.logs.event(as_line(event))
        if (line := self._lines.of_event(event)) is not None:
            self._session.logs.progress(line)
        if self._session.logs.failure is not None and not self._log_failed:
            self._log_failed = True
            self.warn(f"the logs of the session cannot be written: {self._session.logs.failure.strerror}")
        return event

    # what the engine tells -------------------------------------------------------------------------------------

    def hear_live(self, node: str, event: Event) -> None:
        match event.type:
            case "started":
                self._start_node(node, event.data["step_id"], event.data["attempt"])
            case "retrying":
                self._end_node(
                    event.data["step_id"], attempt=event.data["attempt"], status="failed", error=event.data["error"]
                )
            case "tasks_changed":
                self._is_looped = True
                self._change_tasks(event.data)
            case "asked":
                self._ask(node, event.data)
            case _:
                pass

    def _start_node(self, node: str, step_id: str, attempt: int) -> None:
        described = self._described
        local = local_node(node)
        description = described.get(node) or described.get(local) or self._description_of(local)
        started = self.tell(NodeStarted, node=node, step_id=step_id, attempt=attempt, description=description)
        self._open[step_id] = started

    def _description_of(self, id: str) -> str:
        at = self._graph.program.by_id.get(id)
        made = None if at is None else getattr(self._graph.program.ops[at], "node", None)
        return "" if made is None else made.description

    def hear_step(self, node: str, step: Mapping[str, Any]) -> None:
        step_id = step["step_id"]
        if step_id not in self._open:
            self._start_node(node, step_id, step["attempt"])
        self._end_node(
            step_id, attempt=step["attempt"], status=step["status"], error=step["error"], seconds=step["seconds"]
        )
        self._own.note()

    def _end_node(
        self, step_id: str, *, attempt: int, status: str, error: str | None = None, seconds: float | None = None
    ) -> None:
        started = self._open.pop(step_id, None)
        if started is None:
            return
        took = time.time() - started.time if seconds is None else seconds
        self.tell(
            NodeEnded, node=started.node, step_id=step_id, attempt=attempt, description=started.description,
            status=status, seconds=round(took, 6), error=error,
        )  # fmt: skip

    def open_tasks(self) -> None:
        """Take up the list of earlier processes.

        A loop works on a list of its own, which a resume finds as it was left: the state still has the list as it was
        planned.
        """
        if _loops(self._graph) and self._kept_tasks.exists:
            self._planned = ()

    def hear_state(self, state: Any) -> None:
        tasks = getattr(state, "tasks", None)
        if isinstance(tasks, list) and tasks and all(isinstance(task, Task) for task in cast("list[Any]", tasks)):
            planned, self._planned = self._planned, tuple(cast("list[Task]", tasks))
            if planned is None or (planned and planned != self._planned):
                self.tasks(self._planned)

    def keep_tasks(self) -> None:
        """A list that was worked on elsewhere is kept with the session too, as it was at the end."""
        if self._is_looped and not self._is_worked_on:
            self._kept_tasks.write(TaskList(self._tasks))

    def _change_tasks(self, tasks: Sequence[Task]) -> None:
        self._tasks = tuple(tasks)
        self.tell(TasksChanged, tasks=self._tasks)

    def _ask(self, node: str, question: Question) -> None:
        labels = [option.label for option in question.options]
        self.questions[question.id] = OpenQuestion(
            question.id, question.text, labels, node, question.header, question.multi_select, question.default
        )
        self._session.save(questions=tuple(self.questions.values()))
        self.tell(QuestionAsked, question=question, node=node)

    def keep_questions(self, open_ids: Collection[str]) -> None:
        """Only these are open: what a branch has asked that others decided against is not."""
        for id in [id for id in self.questions if id not in open_ids]:
            self.close_question(id)

    def close_question(self, id: str) -> None:
        if self.questions.pop(id, None) is not None:
            self._session.save(questions=tuple(self.questions.values()))

    # what the runtime tells ------------------------------------------------------------------------------------

    def activity(self, caller: Caller, event: AgentEvent) -> None:
        self.tell(AgentActivity, node=caller.node, task=caller.task, role=caller.role, event=event)

    def cap(self, reached: CapReached) -> None:
        """Tell that a cap is reached; once, however many turns it ends or keeps from beginning."""
        if reached.kind in self._told_caps:
            return
        self._told_caps.add(reached.kind)
        self.tell(LimitReached, kind=reached.kind, limit=reached.limit, spent=reached.spent)

    def parked(self, until: float) -> None:
        self._session.save(parked_until=until)
        self.tell(LimitReached, kind="provider", limit=None, spent=None, reset_at=until)

    def began_call(self, line: Mapping[str, Any]) -> None:
        self._session.logs.progress(self._lines.began(line))

    def progress(self, data: Any) -> None:
        """Note what came of a task's attempt, as a node tells it: its `task` and its `text`."""
        if isinstance(data, Mapping):
            found = cast("Mapping[str, Any]", data)
            self._session.logs.progress(f"{self._lines.label(str(found.get('task')))}: {found.get('text')}")

    def call(self, line: Mapping[str, Any]) -> None:
        self._session.logs.call(line)
        self._session.logs.progress(self._lines.ended(line))
        if line["reason"] in FAILED_CALLS:
            who = f"{line['role'] or line['node']}" + (f" of task {line['task']}" if line["task"] else "")
            why = line["error"] or "the agent gives no reason"
            self._session.logs.error(f"{line['provider']}: the call of the {who} failed ({line['reason']}): {why}")
        self._session.save(cost=self.cost(), durable=False)
        self._own.note()

    def tasks(self, tasks: Sequence[Task]) -> None:
        if tuple(tasks) == self._tasks:
            return
        self._kept_tasks.write(TaskList(tasks))
        self._change_tasks(tasks)

    def write_tasks(self, path: AnyPath, tasks: TaskList) -> None:
        if self._kept_tasks.is_at(path):
            self._is_worked_on = True
            self._kept_tasks.write(tasks)
        else:
            self._clean_tasks.write(path, tasks)

    def warn(self, text: str) -> None:
        self.tell(Warning, text=text)

    def warn_of(self, node: str, data: Any) -> None:
        """What a node or the engine warns of."""
        self.tell(Warning, text=_warning_text(node, data), node=node)

    def answered(self, question: Question) -> None:
        self.close_question(question.id)

    def named(self, ids: Mapping[str, Sequence[str]]) -> None:
        self._session.save(named={name: list(kept) for name, kept in ids.items()}, durable=False)


def _loops(graph: CompiledGraph[Any]) -> bool:
    return any(node.kind is NodeKind.TASKS for node in all_nodes(graph))


def _warning_text(node: str, data: Any) -> str:
    if isinstance(data, Mapping):
        found = cast("Mapping[str, Any]", data)
        text = found.get("text") or found.get("message")
        return str(text or dict(found)).removeprefix(f"{node}: ")
    return str(data)
