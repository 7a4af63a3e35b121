"""Loops over a list of tasks, and loops until a criterion holds.

Tasks start by readiness, not in rounds: a task starts when its last blocker is done and
a worker is free. Statuses are written before a worker starts: into the file, or into
the journal for the list of the run's own session. The journal records what the nodes of
a task did.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from atomic.graph.engine.author_functions import AuthorFunctions, OfItem, call, takes, value_of
from atomic.graph.engine.node import Condition, Limit, LoopBody, Node, NodeKind, Sequel, TasksBody
from atomic.graph.engine.nodes import Text, block_of
from atomic.graph.engine.state import StateT
from atomic.tasks import Task, TaskList, TaskStatus

TaskSelector = Callable[[Sequence[Task], StateT], Task | None] | Callable[[Sequence[Task]], Task | None]
TASKS_PATH = "research/tasks.json"
WriteTasks = Callable[[str, TaskList], None]
_FENCE = re.compile(r"\s*(?:>\s*)*(`{3,}|~{3,})(.*)")
COMES_FIRST = "comes_first"  # in a task's metadata: no other task starts before it is done
_DONE = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


def task_loop_node(
    id: str,
    *,
    tasks_path: Text[StateT] = TASKS_PATH,
    task_nodes: Sequel[StateT],
    until: Condition[StateT] | None = None,
    max_iterations: int = 100,
    task_selector: TaskSelector[StateT] | None = None,
    max_concurrency: Limit[StateT] = 1,
    name: str = "",
    description: str = "",
    model: str | None = None,
) -> Node[StateT, Any]:
    """Make a node that works on the tasks of a file.

    Its nodes get the task as `ctx.item`.

    If work is left and nothing can run, the run is `blocked` and lists every waiting
    task with its reason.
    """

    problems = () if max_iterations >= 0 else (f"max_iterations is {max_iterations}; give 0 for no bound, or more",)
    functions = AuthorFunctions(*problems)
    get_path = functions.read("tasks_path", tasks_path)
    limit = functions.read("max_concurrency", max_concurrency)
    done = None if until is None else functions.require("until", until)

    def dispatcher(state: StateT, deps: Any, item: Any) -> TaskDispatcher:
        path = value_of(get_path, state, item)
        of_run = getattr(deps, "tasks", None)
        tasks = getattr(of_run, "load", TaskList.read)(path)
        write = getattr(of_run, "keep", _write)
        return TaskDispatcher(path, tasks, max_iterations=max_iterations, selector=selector, write=write)

    selector: Any = task_selector
    problems: tuple[str, ...] = ()
    if task_selector is not None and not takes(task_selector, 2):
        selector = _by_tasks_alone(task_selector)
        if not takes(task_selector, 1):
            problems = ("task_selector must take the ready tasks, or the tasks and the state",)
    body = TasksBody(dispatcher, block_of(task_nodes), done, limit)
    return Node(
        id=id, kind=NodeKind.TASKS, body=body, name=name, description=description, model=model,
        problems=(*functions.problems, *problems), of_item=functions.of_item,
    )  # fmt: skip


def _by_tasks_alone(selector: Any) -> Callable[[Sequence[Task], Any], Task | None]:
    def select(ready: Sequence[Task], state: Any) -> Task | None:
        return selector(ready)

    return select


def _write(path: str, tasks: TaskList) -> None:
    tasks.write(path)


class TaskDispatcher:
    """Hands out the tasks of a file and updates their statuses there with `write`."""

    def __init__(
        self,
        path: str,
        tasks: TaskList,
        *,
        max_iterations: int,
        selector: Callable[[Sequence[Task], Any], Task | None] | None,
        write: WriteTasks = _write,
    ) -> None:
        self._path = path
        self._max_iterations = max_iterations
        self._selector = selector
        self._write = write
        self._tasks = tasks
        self._started = 0
        self._first = {task.id for task in self._tasks.tasks if task.metadata.get(COMES_FIRST) is True}
        self._failures: dict[str, str] = {}  # in this process

    def take(self, state: Callable[[], Any]) -> tuple[str, Task] | None:
        if self._max_iterations and self._started >= self._max_iterations:
            return None
        ready = self._tasks.ready()
        if waiting := self._undone_first():
            ready = [task for task in ready if task.id in waiting]
        task = self._selector(ready, state()) if self._selector is not None and ready else next(iter(ready), None)
        if task is None:
            return None
        self._started += 1
        return task.id, self._change(task.id, TaskStatus.IN_PROGRESS)

    def finish(self, key: str, error: Exception | None) -> None:
        if error is not None:
            self._failures[key] = getattr(error, "reason", str(error))
        self._change(key, TaskStatus.COMPLETED if error is None else TaskStatus.FAILED)

    def put_back(self, key: str) -> None:
        self._started -= 1
        self._change(key, TaskStatus.PENDING)

    def postpone(self, key: str, first: Sequence[Task]) -> None:
        known = {task.id for task in self._tasks.tasks}
        new = [task for task in first if task.id not in known]
        tasks = self._tasks
        self._tasks = TaskList([*tasks.tasks, *new], metadata=tasks.metadata, problems=tasks.problems)
        self._first.update(task.id for task in first)
        self.put_back(key)

    def _undone_first(self) -> list[str]:
        return [id for id in self._first if self._tasks.require(id).status not in _DONE]

    def _change(self, task_id: str, status: TaskStatus) -> Task:
        task = self._tasks.set_status(task_id, status)
        self._write(self._path, self._tasks)
        return task

    def finished(self) -> list[str]:
        return [task.id for task in self._tasks.tasks if task.status is TaskStatus.COMPLETED]

    def resume(self, begun: Sequence[str]) -> None:
        """Count tasks that ended.

        Tasks that were only begun are taken and counted again.
        """
        ended = {task.id for task in self._tasks.tasks if task.status in (*_DONE, TaskStatus.FAILED)}
        self._started = len(ended.intersection(begun))

    def retry_failed(self) -> None:
        """Make failed tasks pending again. This is written when they are taken."""
        for task in self._tasks.tasks:
            if task.status is TaskStatus.FAILED:
                self._tasks.set_status(task.id, TaskStatus.PENDING)

    def blockers_of(self, key: str) -> list[str]:
        found: dict[str, None] = {}
        open_ids = [key]
        while open_ids:
            for blocker in self._tasks.require(open_ids.pop()).blocked_by:
                if blocker not in found:
                    found[blocker] = None
                    open_ids.append(blocker)
        return list(found)

    def order(self) -> list[str]:
        return [task.id for task in self._tasks.tasks]

    def items(self) -> list[Task]:
        return list(self._tasks.tasks)

    def unfinished(self) -> str | None:
        tasks = self._tasks.tasks
        left = [task for task in tasks if task.status not in _DONE]
        if not left:
            return None
        for id in self._undone_first():
            if id in self._failures:
                rest = f"; {len(left) - 1} more tasks wait for it" if len(left) > 1 else ""
                return f"task {id} ({self._tasks.require(id).title}) failed: {self._failures[id]}{rest}"
        reasons = self._tasks.waiting()
        lines = "; ".join(f"task {task.id}{self._why(task, reasons)}" for task in left)
        bound = self._max_iterations
        why = f"after max_iterations ({bound})" if bound and self._started >= bound else "and none can run"
        are = "is" if len(left) == 1 else "are"
        return f"{len(left)} of {len(tasks)} tasks {are} not done {why}: {lines}"

    def _why(self, task: Task, reasons: Mapping[str, str]) -> str:
        failure = self._failures.get(task.id)
        return f" failed: {failure}" if failure else f": {reasons.get(task.id, task.status.value)}"


def criteria_loop_node(
    id: str,
    *,
    task_nodes: Sequel[StateT],
    completion_signal: str | None = None,
    criteria: Condition[StateT] | None = None,
    max_iterations: int = 100,
) -> Node[StateT, Any]:
    """Make nodes that repeat until the criterion holds or the last answer has the
    signal.

    The signal counts only as a separate line at the very end, outside of a code fence.
    """
    block = block_of(task_nodes)
    last = block.nodes[-1].id if block.nodes else ""

    is_open = completion_signal is None and criteria is None
    functions = AuthorFunctions(*(("give criteria=, completion_signal= or both",) if is_open else ()))
    holds = None if criteria is None else functions.require("criteria", criteria)

    def until(state: StateT, item: Any) -> bool:
        if holds is not None and call(holds, state, item=item):
            return True
        return completion_signal is not None and ends_with_signal(str(state.outputs.get(last, "")), completion_signal)

    body = LoopBody(block, cast("Any", OfItem(until)), max_iterations)
    return Node(id=id, kind=NodeKind.LOOP, body=body, problems=functions.problems, of_item=functions.of_item)


def ends_with_signal(text: str, signal: str) -> bool:
    """Return whether the last non-empty line is the signal, outside of a code fence."""
    lines = [line for line in text.split("\n") if line.strip()]
    return bool(lines) and lines[-1].strip() == signal and not _in_fence(lines[:-1])


def _in_fence(lines: Sequence[str]) -> bool:
    """Return whether a code fence is open after these lines.

    As in Markdown, a fence closes with its own character, at least as often.
    """
    fence = ""
    for line in lines:
        found = _FENCE.match(line)
        if found is None:
            continue
        mark = found[1]
        rest = found[2].strip()
        if not fence:
            fence = "" if mark[0] == "`" and "`" in rest else mark
        elif mark[0] == fence[0] and len(mark) >= len(fence) and not rest:
            fence = ""
    return bool(fence)
