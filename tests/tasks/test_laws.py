"""Properties of every task list."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from atomic.tasks import NoTaskListError, ProblemKind, Task, TaskList, TaskStatus

IDS = st.text(min_size=1, max_size=4).map(lambda text: text.strip().lstrip("#").strip()).filter(bool)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=3)
TASKS = st.lists(
    st.builds(
        Task,
        id=IDS,
        title=st.text(),
        description=st.text(),
        status=st.sampled_from(TaskStatus),
        priority=st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        blocked_by=st.lists(IDS, max_size=3),
        acceptance=st.lists(st.text(min_size=1), max_size=3),
        metadata=OBJECTS,
    ),
    max_size=6,
)


@given(TASKS, OBJECTS)
def test_a_written_list_reads_back_unchanged(tasks: list[Task], metadata: dict[str, Any]) -> None:
    written = TaskList(tasks, metadata=metadata)
    read = TaskList.parse(written.dump())
    assert read.tasks == written.tasks
    assert read.metadata == written.metadata
    assert read.dump() == written.dump()


KEYS = st.sampled_from(
    [
        "id",
        "ID",
        "title",
        "name",
        "content",
        "Title",
        "description",
        "status",
        "Status",
        "priority",
        "Priority",
        "blocked_by",
        "blockedBy",
        "dependencies",
        "depends-on",
        "acceptance",
        "Acceptance",
        "metadata",
        "owner",
        "x",
    ]
)
LOOSE = st.dictionaries(KEYS, JSON | st.sampled_from(["done", "#1", "x", 1, ["1", 2], {"x": 1}]))


@given(st.lists(LOOSE.flatmap(lambda item: st.tuples(st.just(item), st.permutations(list(item.items())))), max_size=4))
def test_the_order_of_keys_means_nothing(items: list[tuple[dict[str, Any], list[tuple[str, Any]]]]) -> None:
    one = TaskList.parse([item for item, _ in items])
    other = TaskList.parse([dict(shuffled) for _, shuffled in items])
    assert one.dump() == other.dump()
    assert one.problems == other.problems


@given(st.lists(LOOSE, max_size=4) | JSON | st.text() | st.binary() | st.text('[]{}":,\\u0d8 \n-1e', max_size=30))
def test_any_data_is_refused_or_can_be_written_again(source: object) -> None:
    try:
        tasks = TaskList.parse(source)
    except NoTaskListError:
        return
    assert TaskList.parse(tasks.dump()).tasks == tasks.tasks
    assert all(isinstance(reason, str) for reason in tasks.waiting().values())


# Readiness against its definition

FEW_IDS = st.sampled_from("abcdefgh")
GRAPHS = st.lists(
    st.builds(
        Task,
        id=FEW_IDS,
        title=st.just("x"),
        status=st.sampled_from([TaskStatus.PENDING, TaskStatus.PENDING, *TaskStatus]),
        priority=st.none() | st.integers(0, 2),
        blocked_by=st.lists(FEW_IDS, max_size=3),
    ),
    max_size=8,
    unique_by=lambda task: task.id,
)
CHANGES = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(TaskStatus)), max_size=12)
DONE = (TaskStatus.COMPLETED, TaskStatus.SKIPPED)


class Definition:
    """The definition of readiness, written out without optimization."""

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.interrupted = {task.id for task in tasks if task.status is TaskStatus.IN_PROGRESS}

    def above(self, id: str) -> set[str]:
        found: set[str] = set()
        todo = list(self.tasks[id].blocked_by)
        while todo:
            blocker = todo.pop()
            if blocker in self.tasks and blocker not in found:
                found.add(blocker)
                todo += self.tasks[blocker].blocked_by
        return found

    def may_start(self, task: Task) -> bool:
        return task.status is TaskStatus.PENDING or task.id in self.interrupted

    def is_ready(self, task: Task) -> bool:
        above = self.above(task.id)
        return (
            self.may_start(task)
            and all(blocker in self.tasks and self.tasks[blocker].status in DONE for blocker in task.blocked_by)
            and all(self.tasks[id].status is not TaskStatus.FAILED for id in above)
            and task.id not in above
        )

    def ready(self) -> list[str]:
        ready = [task for task in self.tasks.values() if self.is_ready(task)]
        ready.sort(key=lambda task: float("inf") if task.priority is None else task.priority)
        return [task.id for task in ready]

    def waiting(self) -> set[str]:
        return {
            task.id
            for task in self.tasks.values()
            if (self.may_start(task) or task.status is TaskStatus.BLOCKED) and not self.is_ready(task)
        }

    def change(self, task: Task) -> None:
        self.interrupted.discard(task.id)
        self.tasks[task.id] = task


@given(GRAPHS, CHANGES)
def test_ready_tasks_match_the_definition(tasks: list[Task], changes: list[tuple[int, TaskStatus]]) -> None:
    listed = TaskList(tasks)
    definition = Definition(tasks)
    for position, status in changes if tasks else []:
        assert [task.id for task in listed.ready()] == definition.ready()
        assert listed.waiting().keys() == definition.waiting()
        definition.change(listed.set_status(tasks[position % len(tasks)].id, status))
    assert [task.id for task in listed.ready()] == definition.ready()
    assert listed.waiting().keys() == definition.waiting()


@given(GRAPHS, CHANGES)
def test_a_list_that_is_read_again_has_the_same_ready_tasks(
    tasks: list[Task], changes: list[tuple[int, TaskStatus]]
) -> None:
    listed = TaskList(tasks)
    for position, status in changes if tasks else []:
        # Only the status "in progress" changes when a list is read.
        if status is not TaskStatus.IN_PROGRESS:
            listed.set_status(tasks[position % len(tasks)].id, status)
    again = TaskList.parse(listed.dump())
    assert (again.ready(), again.waiting(), again.problems) == (listed.ready(), listed.waiting(), listed.problems)


@given(GRAPHS)
def test_every_task_that_waits_for_itself_is_in_a_named_cycle(tasks: list[Task]) -> None:
    definition = Definition(tasks)
    circular = {task.id for task in tasks if task.id in definition.above(task.id)}
    cycles = [problem.message for problem in TaskList(tasks).problems if problem.kind is ProblemKind.CYCLE]
    named = {word for message in cycles for word in re.findall(r"\b[a-h]\b", message)}
    assert named == circular
