"""Feature lists in both forms are read like task lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from atomic.tasks import NoTaskListError, ProblemKind, Task, TaskList, TaskStatus, convert_feature_list

NAMED: dict[str, Any] = {
    "features": [
        {
            "id": "login",
            "name": "Log in",
            "description": "With a password",
            "acceptanceCriteria": ["a wrong password is refused", "a right one is not"],
            "status": "passing",
            "implementedAt": "2026-01-01T00:00:00Z",
        },
        {"id": "dark", "name": "Dark mode", "description": "", "status": "in_progress"},
        {"id": "mail", "name": "Send mail", "description": "", "status": "pending"},
        {"id": "sms", "name": "Send SMS", "description": "", "status": "failing", "error": "no gateway"},
    ]
}
FEATURES: list[dict[str, Any]] = [
    {
        "category": "functional",
        "description": "Log in\nwith a password",
        "steps": ["open /login", "type the password"],
        "passes": True,
    },
    {"category": "style", "description": "Dark mode", "steps": [], "passes": False, "note": "asked for by Ann"},
]


@pytest.mark.parametrize("read", [convert_feature_list, TaskList.parse])
@pytest.mark.parametrize(
    "source",
    [FEATURES, json.dumps(FEATURES), {"features": FEATURES}, {"tasks": FEATURES}, {"tasks": [], "features": FEATURES}],
    ids=["data", "text", "features", "tasks", "both"],
)
def test_a_feature_list_becomes_tasks_that_keep_everything(source: object, read: Callable[[object], TaskList]) -> None:
    tasks = read(source)
    assert tasks.tasks == [
        Task(
            "1",
            "Log in",
            "Log in\nwith a password",
            status=TaskStatus.COMPLETED,
            acceptance=["open /login", "type the password"],
            metadata=FEATURES[0],
        ),
        Task("2", "Dark mode", "Dark mode", metadata=FEATURES[1]),
    ]
    assert tasks.problems == ()
    assert [task.id for task in tasks.ready()] == ["2"]


def test_a_converted_list_is_written_and_read_like_any_other() -> None:
    tasks = convert_feature_list({"features": FEATURES, "project": "shop"})
    again = TaskList.parse(tasks.dump())
    assert (again.tasks, again.metadata) == (tasks.tasks, {"project": "shop"})


def test_ids_of_features_are_kept() -> None:
    tasks = convert_feature_list([{"id": "#7", "description": "x"}, {"id": 7, "description": "y"}])
    assert [task.id for task in tasks.tasks] == ["7", "7-2"]
    assert [str(problem) for problem in tasks.problems] == ['7: duplicate id "7": the task at position 2 becomes "7-2"']


@pytest.mark.parametrize("read", [convert_feature_list, TaskList.parse])
def test_named_features_keep_their_ids_and_statuses(read: Callable[[object], TaskList]) -> None:
    tasks = read(NAMED)
    assert tasks.problems == ()
    assert [(task.id, task.title, task.status) for task in tasks.tasks] == [
        ("login", "Log in", "completed"),
        ("dark", "Dark mode", "in_progress"),
        ("mail", "Send mail", "pending"),
        ("sms", "Send SMS", "failed"),
    ]
    assert tasks.tasks[0].acceptance == ["a wrong password is refused", "a right one is not"]
    assert tasks.tasks[0].metadata == {"implementedAt": "2026-01-01T00:00:00Z"}
    assert tasks.tasks[3].metadata == {"error": "no gateway"}


def test_features_without_an_id_get_their_position_and_a_title() -> None:
    tasks = TaskList.parse({"features": [{}, {"steps": "look"}]})
    assert [(task.id, task.title) for task in tasks.tasks] == [("1", "Task 1"), ("2", "Task 2")]
    assert [(problem.task_id, problem.kind) for problem in tasks.problems] == [("1", ProblemKind.NO_TEXT)]


@pytest.mark.parametrize(
    ("item", "status"),
    [
        ({"passes": True}, "completed"),
        ({"passes": "true"}, "completed"),
        ({"Passes": True}, "completed"),
        ({"passes": False}, "pending"),
        ({"passes": None}, "pending"),
        ({"passes": False, "status": "failing"}, "failed"),
        ({"passes": True, "status": "done"}, "completed"),
    ],
)
def test_passes_decides_whether_a_task_is_completed(item: dict[str, Any], status: str) -> None:
    tasks = TaskList.parse([{"id": "1", "title": "x", **item}])
    assert (tasks.tasks[0].status, tasks.problems) == (status, ())


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (
            {"passes": False, "status": "completed"},
            '1: "status" says completed and "passes" says false; taken as pending',
        ),
        ({"passes": True, "status": "failed"}, '1: "status" says failed and "passes" says true; taken as failed'),
        ({"passes": "maybe"}, '1: "passes" is "maybe", neither true nor false; taken as pending'),
    ],
)
def test_a_contradiction_is_a_problem_and_never_completed(item: dict[str, Any], problem: str) -> None:
    tasks = TaskList.parse([{"id": "1", "title": "x", **item}])
    assert not tasks.tasks[0].status.is_done
    assert [str(one) for one in tasks.problems] == [problem]
    assert tasks.tasks[0].metadata["passes"] == item["passes"]


def test_criteria_and_steps_are_both_acceptance() -> None:
    (task,) = TaskList.parse([{"id": "1", "acceptanceCriteria": "it is fast", "steps": ["open", "look"]}]).tasks
    assert task.acceptance == ["it is fast", "open", "look"]


@pytest.mark.parametrize("source", ["no json", "{}", "[1]", None])
def test_data_without_a_feature_list_is_refused(source: object) -> None:
    with pytest.raises(NoTaskListError):
        convert_feature_list(source)
