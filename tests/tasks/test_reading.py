"""Task files as users, agents and other tools write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from atomic.base.errors import AtomicError
from atomic.tasks import NoTaskListError, ProblemKind, Task, TaskList, TasksError, TaskStatus


def only(item: dict[str, Any]) -> Task:
    (task,) = TaskList.parse([item]).tasks
    return task


def told(tasks: TaskList) -> list[str]:
    return [str(problem) for problem in tasks.problems]


WHOLE = {
    "version": "1.0",
    "tasks": [
        {
            "id": "1",
            "title": "Log in",
            "description": "with a password",
            "status": "pending",
            "priority": 2,
            "blocked_by": ["2"],
            "acceptance": ["a wrong password is refused"],
            "metadata": {"owner": "ann"},
        },
        {"id": "2", "title": "Users"},
    ],
    "metadata": {"project": "shop"},
}


@pytest.mark.parametrize(
    "source", [WHOLE, json.dumps(WHOLE), json.dumps(WHOLE).encode()], ids=["data", "text", "bytes"]
)
def test_a_task_list_is_read_from_text_and_from_data(source: object) -> None:
    tasks = TaskList.parse(source)
    assert tasks.tasks == [
        Task(
            "1",
            "Log in",
            "with a password",
            TaskStatus.PENDING,
            2,
            ["2"],
            ["a wrong password is refused"],
            {"owner": "ann"},
        ),
        Task("2", "Users"),
    ]
    assert tasks.metadata == {"project": "shop"}
    assert tasks.problems == ()


def test_a_bare_array_is_a_task_list() -> None:
    assert TaskList.parse(WHOLE["tasks"]).tasks == TaskList.parse(WHOLE).tasks


def test_tasks_that_were_built_can_be_parsed_too() -> None:
    assert TaskList.parse([Task("1", "x", status=TaskStatus.FAILED)]).tasks == [
        Task("1", "x", status=TaskStatus.FAILED)
    ]


def test_an_empty_list_has_no_tasks() -> None:
    assert (TaskList.parse([]).tasks, TaskList.parse('{"tasks": []}').tasks) == ([], [])


def test_a_task_needs_only_id_and_title() -> None:
    assert Task("1", "x") == Task(
        id="1",
        title="x",
        description="",
        status=TaskStatus.PENDING,
        priority=None,
        blocked_by=[],
        acceptance=[],
        metadata={},
    )
    assert Task("1", "x").blocked_by is not Task("2", "y").blocked_by


@pytest.mark.parametrize("key", ["title", "name", "content", "Title", "NAME"])
def test_a_title_has_several_names(key: str) -> None:
    assert only({"id": 1, key: "Log in"}) == Task("1", "Log in")


def test_the_best_name_of_a_title_wins_and_the_others_are_kept() -> None:
    assert only({"id": 1, "content": "c", "name": "n", "title": "t"}) == Task(
        "1", "t", metadata={"content": "c", "name": "n"}
    )
    assert only({"id": 1, "title": "", "name": "n"}).title == "n"


def test_a_task_without_a_title_is_called_by_its_description_or_id() -> None:
    assert only({"id": 1, "description": "\nLog in\nwith a password"}).title == "Log in"
    assert only({"id": 1}).title == "Task 1"


@pytest.mark.parametrize(
    "key", ["blocked_by", "blockedBy", "dependencies", "depends_on", "dependsOn", "blocked-by", "Blocked By"]
)
def test_blockers_have_several_names(key: str) -> None:
    assert only({"id": 1, "title": "x", key: ["2"]}) == Task("1", "x", blocked_by=["2"])


def test_blockers_under_two_names_all_count() -> None:
    task = only({"id": 1, "title": "x", "dependencies": ["3", "2"], "blocked_by": ["2"]})
    assert task == Task("1", "x", blocked_by=["2", "3"])


@pytest.mark.parametrize(
    ("given", "blocked_by"),
    [
        (None, []),
        ([], []),
        ("", []),
        ("2", ["2"]),
        ("#2, 3", ["2", "3"]),
        (2, ["2"]),
        (["#2", 2, " 2 ", 2.0], ["2"]),
        ([None, "", " # "], []),
        ([{"id": 2}, {"id": "#3", "title": "y"}], ["2", "3"]),
    ],
)
def test_blockers_are_read_in_many_forms(given: object, blocked_by: list[str]) -> None:
    assert only({"id": 1, "title": "x", "blocked_by": given}).blocked_by == blocked_by


def test_a_blocker_that_cannot_be_read_still_blocks() -> None:
    tasks = TaskList.parse([{"id": 1, "title": "x", "blocked_by": [True]}])
    assert tasks.ready() == []
    assert told(tasks) == ['1: unknown blocker "true"']


@pytest.mark.parametrize(
    ("word", "status"),
    [
        *((status.value, status) for status in TaskStatus),
        ("passing", TaskStatus.COMPLETED),
        ("done", TaskStatus.COMPLETED),
        ("complete", TaskStatus.COMPLETED),
        ("failing", TaskStatus.FAILED),
        ("error", TaskStatus.FAILED),
        ("DONE", TaskStatus.COMPLETED),
        (" in progress ", TaskStatus.IN_PROGRESS),
        ("in-progress", TaskStatus.IN_PROGRESS),
        ("inProgress", TaskStatus.IN_PROGRESS),
        ("", TaskStatus.PENDING),
        (None, TaskStatus.PENDING),
    ],
)
def test_a_status_has_several_words(word: str | None, status: TaskStatus) -> None:
    tasks = TaskList.parse([{"id": 1, "title": "x", "status": word}])
    assert tasks.tasks == [Task("1", "x", status=status)]
    assert tasks.problems == ()


@pytest.mark.parametrize("word", ["banana", 7, True, ["done"], {"is": "done"}])
def test_an_unknown_status_is_pending_and_a_problem_and_is_kept(word: object) -> None:
    tasks = TaskList.parse([{"id": "a", "title": "x", "status": word}])
    assert tasks.tasks == [Task("a", "x", metadata={"status": word})]
    (problem,) = tasks.problems
    assert (problem.task_id, problem.kind) == ("a", ProblemKind.UNKNOWN_STATUS)
    shown = word if isinstance(word, str) else json.dumps(word, separators=(",", ":"))
    assert str(problem) == f'a: unknown status "{shown}", taken as pending'


@pytest.mark.parametrize("id", ["1", 1, "#1", " 1 ", "# 1", " #1", 1.0])
def test_a_number_a_hash_and_blanks_are_one_id(id: object) -> None:
    assert only({"id": id, "title": "x"}).id == "1"


@pytest.mark.parametrize("id", [None, "", " ", "#", True, [], {}])
def test_a_task_without_an_id_gets_its_position(id: object) -> None:
    tasks = TaskList.parse([{"id": "2", "title": "x"}, {"id": id, "title": "y"}])
    assert [task.id for task in tasks.tasks] == ["2", "2-2"]
    assert told(tasks) == ["2-2: the task at position 2 has no id and gets this one"]
    assert tasks.problems[0].kind is ProblemKind.MISSING_ID


def test_of_two_tasks_with_one_id_neither_is_lost() -> None:
    tasks = TaskList.parse(
        [{"id": 1, "title": "x"}, {"id": "#1", "title": "y"}, {"id": " 1", "title": "z"}, {"id": "1-2", "title": "w"}]
    )
    assert [(task.id, task.title) for task in tasks.tasks] == [("1", "x"), ("1-3", "y"), ("1-4", "z"), ("1-2", "w")]
    assert [(problem.task_id, problem.kind) for problem in tasks.problems] == [("1", ProblemKind.DUPLICATE_ID)] * 2
    assert told(tasks)[0] == '1: duplicate id "1": the task at position 2 becomes "1-3"'


@pytest.mark.parametrize(
    ("given", "priority"),
    [(None, None), (0, 0), (2, 2), (1.5, 1.5), (2.0, 2), (-1, -1), ("2", 2), ("P1", 1), ("high", 1), (10**30, 10**30)],
)
def test_a_priority_is_a_number(given: object, priority: float | None) -> None:
    tasks = TaskList.parse([{"id": 1, "title": "x", "priority": given}])
    assert tasks.tasks == [Task("1", "x", priority=priority)]
    assert tasks.problems == ()


@pytest.mark.parametrize("given", ["soon", True, [1], "nan", "1e999"])
def test_an_unusable_priority_is_kept_and_reported(given: object) -> None:
    tasks = TaskList.parse([{"id": 1, "title": "x", "priority": given}])
    assert tasks.tasks == [Task("1", "x", metadata={"priority": given})]
    assert [problem.kind for problem in tasks.problems] == [ProblemKind.UNREADABLE]


def test_acceptance_may_be_one_line_or_many() -> None:
    assert only({"id": 1, "title": "x", "acceptance": "it works"}).acceptance == ["it works"]
    assert only({"id": 1, "title": "x", "acceptanceCriteria": ["a", 2, None]}).acceptance == ["a", "2"]


def test_unknown_keys_become_metadata() -> None:
    task = only({"id": 1, "title": "x", "owner": "ann", "tags": ["a"], "metadata": {"size": 3}})
    assert task.metadata == {"owner": "ann", "tags": ["a"], "size": 3}
    assert TaskList.parse({"tasks": [], "goal": "shop", "metadata": {"by": "ann"}}).metadata == {
        "goal": "shop",
        "by": "ann",
    }


def test_a_key_that_is_also_in_the_metadata_is_a_problem_if_they_differ() -> None:
    tasks = TaskList.parse([{"id": 1, "title": "x", "a": 1, "b": 1, "metadata": {"a": 2, "b": 1}}])
    assert tasks.tasks[0].metadata == {"a": 2, "b": 1}
    assert told(tasks) == ['1: "a" is in the metadata and in the task; the one in the task is ignored']


def test_metadata_that_is_not_an_object_is_kept() -> None:
    assert only({"id": 1, "title": "x", "metadata": "later"}).metadata == {"metadata": "later"}
    assert TaskList.parse({"tasks": [], "metadata": "later"}).metadata == {"metadata": "later"}


def test_an_item_that_is_not_a_task_is_reported_and_the_others_are_read() -> None:
    tasks = TaskList.parse(["intro", {"id": 1, "title": "x"}, None])
    assert [task.id for task in tasks.tasks] == ["1"]
    assert told(tasks) == [
        "item 1 of the list is a text, not a task: intro",
        "item 3 of the list is null, not a task: ",
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "Expecting value"),
        ("Here is your plan: 1. log in", "Expecting value"),
        ('[{"id": 1}', "Expecting"),
        ("null", "null where a list should be"),
        ("{}", 'an object without a list "tasks" or "features"'),
        ('{"tasks": {"1": {}}}', 'an object without a list "tasks" or "features"'),
        ("[1, 2]", "a list whose first item is a number"),
        (7, "a number where a list should be"),
        ([object()], "unsupported"),
        ("[" * 100_000, "nested more than 100 levels"),
        ('[{"id": 1, "x": ' + "[" * 200 + "]" * 200 + "}]", "nested more than 100 levels"),
    ],
)
def test_data_without_a_task_list_is_refused_with_the_reason(source: object, reason: str) -> None:
    with pytest.raises(NoTaskListError) as caught:
        TaskList.parse(source)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("No task list: ")
    assert str(caught.value).endswith('(expected {"tasks": [...]}, {"features": [...]} or a list of tasks)')
    assert isinstance(caught.value, TasksError)
    assert isinstance(caught.value, AtomicError)


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(NoTaskListError, match="nested"):
        TaskList.parse(endless)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (b'\xef\xbb\xbf[{"id": 1, "title": "x"}]', "x"),
        ('\ufeff[{"id": 1, "title": "x"}]', "x"),
        ('[{"id": 1, "title": "x"}]'.encode("utf-16"), "x"),
        ('[{"id": 1, "title": "two\nlines"}]', "two\nlines"),
        (b'[{"id": 1, "title": "a\xffb"}]', "a\ufffdb"),
        (r'[{"id": 1, "title": "cut \ud83d"}]', "cut \ufffd"),
        (r'[{"id": 1, "title": "whole \ud83d\ude00 and cut \ud83d"}]', "whole 😀 and cut \ufffd"),
        ('[{"id": 1, "title": "cut \ud83d"}]', "cut \ufffd"),
        ([{"id": 1, "title": "cut \ud83d"}], "cut \ufffd"),
        ('[{"id": 1, "title": "x", "size": NaN}]', "x"),
        ('[{"id": 1, "title": "x", "size": -1e999}]', "x"),
        ('[{"id": 1, "title": "x", "size": ' + "9" * 10_000 + "}]", "x"),
    ],
)
def test_text_that_is_almost_json_is_read(text: object, title: str) -> None:
    tasks = TaskList.parse(text)
    assert [(task.id, task.title) for task in tasks.tasks] == [("1", title)]
    assert TaskList.parse(tasks.dump()).tasks == tasks.tasks


def test_a_list_does_not_change_with_the_data_that_it_was_read_from() -> None:
    item: dict[str, Any] = {"id": 1, "title": "x", "blocked_by": ["2"], "metadata": {"tags": ["a"]}}
    tasks = TaskList.parse([item])
    item["blocked_by"].append("3")
    item["metadata"]["tags"].append("b")
    assert tasks.tasks == [Task("1", "x", blocked_by=["2"], metadata={"tags": ["a"]})]
