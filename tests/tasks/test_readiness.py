from __future__ import annotations

import pytest

from atomic.tasks import ProblemKind, Task, TaskList, TaskNotFoundError, TasksError, TaskStatus, UnknownStatusError


def task(id: str, *blocked_by: str, status: TaskStatus = TaskStatus.PENDING, priority: float | None = None) -> Task:
    return Task(id, f"Task {id}", status=status, priority=priority, blocked_by=list(blocked_by))


def ready(tasks: TaskList) -> list[str]:
    return [task.id for task in tasks.ready()]


def told(tasks: TaskList) -> list[str]:
    return [str(problem) for problem in tasks.problems]


def test_a_pending_task_without_blockers_is_ready() -> None:
    assert ready(TaskList([task("a")])) == ["a"]


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED, TaskStatus.SKIPPED])
def test_only_a_pending_task_is_ready(status: TaskStatus) -> None:
    assert ready(TaskList([task("a", status=status)])) == []


@pytest.mark.parametrize("status", list(TaskStatus))
def test_a_task_is_ready_when_its_blockers_are_completed_or_skipped(status: TaskStatus) -> None:
    tasks = TaskList([task("a", status=status), task("b", "a")])
    assert ("b" in ready(tasks)) == (status in (TaskStatus.COMPLETED, TaskStatus.SKIPPED))


def test_a_task_becomes_ready_the_moment_its_last_blocker_is_done() -> None:
    tasks = TaskList([task("a"), task("b"), task("c", "a", "b")])
    tasks.set_status("a", TaskStatus.COMPLETED)
    assert ready(tasks) == ["b"]
    tasks.set_status("b", TaskStatus.SKIPPED)
    assert ready(tasks) == ["c"]
    tasks.set_status("a", TaskStatus.PENDING)
    assert ready(tasks) == ["a"]


def test_the_lower_priority_is_first_then_the_order_of_the_file_and_none_is_last() -> None:
    tasks = TaskList(
        [
            task("none"),
            task("two", priority=2),
            task("zero", priority=0),
            task("also", priority=2),
            task("minus", priority=-1.5),
        ]
    )
    assert ready(tasks) == ["minus", "zero", "two", "also", "none"]


def test_a_task_found_in_progress_was_interrupted_and_is_ready_again() -> None:
    tasks = TaskList.parse([{"id": "a", "title": "x", "status": "in_progress"}])
    assert ready(tasks) == ["a"]
    assert tasks.tasks[0].status is TaskStatus.IN_PROGRESS


def test_a_task_that_is_being_worked_on_is_not_ready() -> None:
    tasks = TaskList([task("a"), task("b", status=TaskStatus.IN_PROGRESS)])
    tasks.set_status("a", TaskStatus.IN_PROGRESS)
    tasks.set_status("b", TaskStatus.IN_PROGRESS)
    assert ready(tasks) == []
    assert tasks.waiting() == {}
    tasks.set_status("a", TaskStatus.PENDING)
    assert ready(tasks) == ["a"]


def test_tasks_that_depend_on_a_failed_one_do_not_start() -> None:
    tasks = TaskList([task("a"), task("b", "a"), task("c", "b"), task("other")])
    tasks.set_status("a", TaskStatus.FAILED)
    assert ready(tasks) == ["other"]
    assert tasks.waiting() == {"b": '"a" failed', "c": '"a" failed, further up the chain'}


def test_a_skipped_task_does_not_hide_the_failure_of_its_blocker() -> None:
    tasks = TaskList([task("a", status=TaskStatus.FAILED), task("b", "a", status=TaskStatus.SKIPPED), task("c", "b")])
    assert ready(tasks) == []
    assert tasks.waiting() == {"c": '"a" failed, further up the chain'}


def test_retrying_a_failed_task_frees_its_dependents() -> None:
    tasks = TaskList([task("a", status=TaskStatus.FAILED), task("b", "a")])
    tasks.set_status("a", TaskStatus.PENDING)
    assert ready(tasks) == ["a"]
    tasks.set_status("a", TaskStatus.COMPLETED)
    assert ready(tasks) == ["b"]


def test_a_task_with_two_failed_blockers_needs_both_retried() -> None:
    tasks = TaskList(
        [
            task("a", status=TaskStatus.FAILED),
            task("b", status=TaskStatus.FAILED),
            task("c", "a", "b", status=TaskStatus.SKIPPED),
            task("d", "c"),
        ]
    )
    tasks.set_status("a", TaskStatus.COMPLETED)
    assert ready(tasks) == []
    tasks.set_status("b", TaskStatus.COMPLETED)
    assert ready(tasks) == ["d"]


def test_waiting_tasks_name_their_blockers() -> None:
    tasks = TaskList([task("a"), task("b", "a"), task("c", "a", "b"), task("d", status=TaskStatus.BLOCKED)])
    assert tasks.waiting() == {"b": 'waits for "a"', "c": 'waits for "a", "b"', "d": "marked as blocked"}
    tasks.set_status("a", TaskStatus.COMPLETED)
    assert tasks.waiting() == {"c": 'waits for "b"', "d": "marked as blocked"}


def test_a_long_list_of_blockers_is_cut() -> None:
    tasks = TaskList([*(task(str(n)) for n in range(12)), task("z", *(str(n) for n in range(12)))])
    assert tasks.waiting()["z"].endswith('"9" and 2 more')


def test_ended_tasks_do_not_wait() -> None:
    done = [
        task(status.value, status=status) for status in (TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.FAILED)
    ]
    assert TaskList(done).waiting() == {}


def test_a_cycle_is_named_in_order_and_never_ready() -> None:
    tasks = TaskList([task("x", "a"), task("a", "b"), task("b", "c"), task("c", "a"), task("free")])
    assert told(tasks) == ["a: cycle a -> b -> c -> a (each waits for the next)"]
    assert tasks.problems[0].kind is ProblemKind.CYCLE
    assert ready(tasks) == ["free"]
    text = "cycle a -> b -> c -> a (each waits for the next)"
    assert tasks.waiting() == {"x": 'waits for "a"', "a": text, "b": text, "c": text}


def test_a_task_in_a_cycle_is_not_ready_even_if_all_the_others_are_done() -> None:
    tasks = TaskList([task("a", "b"), task("b", "a", status=TaskStatus.COMPLETED)])
    assert ready(tasks) == []


def test_a_task_after_a_cycle_is_ready_when_its_own_blocker_is_done() -> None:
    tasks = TaskList([task("a", "b"), task("b", "a"), task("c", "a")])
    tasks.set_status("a", TaskStatus.SKIPPED)
    assert ready(tasks) == ["c"]


def test_every_cycle_is_named() -> None:
    tasks = TaskList([task("a", "b"), task("b", "a"), task("c", "d"), task("d", "c")])
    assert told(tasks) == [
        "a: cycle a -> b -> a (each waits for the next)",
        "c: cycle c -> d -> c (each waits for the next)",
    ]


def test_cycles_that_share_tasks_are_named_together() -> None:
    tasks = TaskList([task("a", "b"), task("b", "a", "c"), task("c", "b")])
    assert told(tasks) == ['a: cycle a -> b -> a (each waits for the next); other cycles go through "c"']


def test_a_task_that_waits_for_itself_is_a_cycle() -> None:
    tasks = TaskList([task("a", "a"), task("b", "a")])
    assert told(tasks) == ["a: cycle a -> a (each waits for the next)"]
    assert ready(tasks) == []


def test_an_unknown_blocker_is_named_and_blocks() -> None:
    tasks = TaskList([task("a", "9"), task("b", "8", "7")])
    assert [(problem.task_id, problem.kind, problem.message) for problem in tasks.problems] == [
        ("a", ProblemKind.UNKNOWN_BLOCKER, 'unknown blocker "9"'),
        ("b", ProblemKind.UNKNOWN_BLOCKER, 'unknown blockers "8", "7"'),
    ]
    assert ready(tasks) == []
    assert tasks.waiting() == {"a": 'unknown blocker "9"', "b": 'unknown blockers "8", "7"'}


def test_every_reason_is_given() -> None:
    tasks = TaskList([task("f", status=TaskStatus.FAILED), task("a", "a", "9", "f", status=TaskStatus.BLOCKED)])
    assert tasks.waiting() == {
        "a": 'cycle a -> a (each waits for the next); unknown blocker "9"; "f" failed; marked as blocked'
    }


def test_ids_of_tasks_that_were_built_are_cleaned_too() -> None:
    tasks = TaskList([task("#1"), task("2", " #1", "1", "")])
    assert tasks.tasks == [Task("1", "Task #1"), Task("2", "Task 2", blocked_by=["1"])]
    assert tasks.problems == ()


@pytest.mark.parametrize("id", ["1", "#1", " 1 "])
def test_a_status_is_set_by_any_form_of_the_id(id: str) -> None:
    tasks = TaskList([task("1")])
    changed = tasks.set_status(id, "done")
    assert changed.status is TaskStatus.COMPLETED
    assert tasks.require(id) is tasks.tasks[0] is changed


def test_an_unknown_task_is_an_error_with_the_nearest() -> None:
    tasks = TaskList([task("login")])
    with pytest.raises(TaskNotFoundError) as caught:
        tasks.set_status("logn", TaskStatus.COMPLETED)
    assert str(caught.value) == 'Task not found: "logn" (did you mean "login"?)'
    assert isinstance(caught.value, TasksError)


def test_an_unknown_status_cannot_be_set() -> None:
    tasks = TaskList([task("a")])
    with pytest.raises(UnknownStatusError) as caught:
        tasks.set_status("a", "banana")
    assert str(caught.value) == (
        'Unknown status: "banana" (one of pending, in_progress, completed, failed, blocked, skipped)'
    )
    assert ready(tasks) == ["a"]


def test_changing_a_returned_list_does_not_change_the_task_list() -> None:
    tasks = TaskList([task("a")])
    tasks.tasks.clear()
    tasks.ready().clear()
    assert ready(tasks) == ["a"]
    assert len(tasks.tasks) == 1


def test_a_status_may_be_given_by_its_word() -> None:
    assert Task("a", "x", status=TaskStatus("failed")).status is TaskStatus.FAILED
    with pytest.raises(ValueError, match="banana"):
        Task("a", "x", status=TaskStatus("banana"))
