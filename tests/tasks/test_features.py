from __future__ import annotations

import json
from typing import Any

import pytest

from atomic.tasks import NoTaskListError, Task, TaskList, TaskStatus, convert_feature_list

FEATURES: list[dict[str, Any]] = [
    {
        "category": "functional",
        "description": "Log in\nwith a password",
        "steps": ["open /login", "type the password"],
        "passes": True,
    },
    {"category": "style", "description": "Dark mode", "steps": [], "passes": False, "note": "asked for by Ann"},
]


@pytest.mark.parametrize(
    "source", [FEATURES, json.dumps(FEATURES), {"features": FEATURES}], ids=["data", "text", "object"]
)
def test_a_feature_list_becomes_tasks_that_keep_everything(source: object) -> None:
    tasks = convert_feature_list(source)
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


def test_a_feature_without_a_description_gets_a_name() -> None:
    assert [task.title for task in convert_feature_list([{}, {"steps": "look"}]).tasks] == ["Feature 1", "Feature 2"]


@pytest.mark.parametrize("source", ["no json", "{}", "[1]", None])
def test_what_is_no_feature_list_is_refused(source: object) -> None:
    with pytest.raises(NoTaskListError):
        convert_feature_list(source)
