"""`atomic tasks`: show a list, its next task and its problems."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.entity_files import write
from tests.support.user import User, complaint

LIST = """{"tasks": [
  {"id": 1, "title": "Plan the login", "status": "done"},
  {"id": "#2", "name": "Build it", "dependencies": [1], "priority": 2, "description": "With sessions."},
  {"id": 3, "content": "Test it", "blockedBy": ["2"], "acceptance": ["all green"]}
]}"""
STEPS = """{"features": [
  {"category": "ui", "description": "Show it", "steps": ["open", "look"], "passes": true},
  {"category": "ui", "description": "Hide it", "steps": ["close"], "passes": false}
]}"""
CRITERIA = """{"features": [
  {"id": "1", "name": "Show it", "description": "Show it", "acceptanceCriteria": ["open", "look"], "status": "passing"},
  {"id": "2", "name": "Hide it", "description": "Hide it", "acceptanceCriteria": ["close"], "status": "pending"}
]}"""
CIRCLE = '{"tasks": [{"id": "a", "title": "A", "blocked_by": ["b"]}, {"id": "b", "title": "B", "blocked_by": ["a"]}]}'


@pytest.mark.parametrize("words", [("tasks", "show"), ("tasks",)])
async def test_show_prints_the_obstacle_of_each_task(user: User, words: tuple[str, ...]) -> None:
    write(user.project / "tasks.json", LIST)
    done = await user.atomic(*words, "tasks.json")
    assert (done.exit_code, done.stderr) == (0, "")
    first, second, third, count = done.stdout.splitlines()
    assert first.split() == ["1", "completed", "Plan", "the", "login"]
    assert second.split()[:4] == ["2", "pending", "2", "ready"]
    assert "2" in third
    assert "Test it" in third
    assert count == "3 tasks: 2 pending, 1 completed"


async def test_show_as_json_is_the_strict_list(user: User) -> None:
    write(user.project / "tasks.json", LIST)
    done = await user.atomic("tasks", "show", "tasks.json", "--json")
    tasks = msgspec.json.decode(done.stdout)["tasks"]
    assert [(task["id"], task["status"], task["blocked_by"]) for task in tasks] == [
        ("1", "completed", []),
        ("2", "pending", ["1"]),
        ("3", "pending", ["2"]),
    ]


async def test_next_is_the_task_that_may_start(user: User) -> None:
    write(user.project / "tasks.json", LIST)
    done = await user.atomic("tasks", "next", "tasks.json")
    assert (done.exit_code, done.stdout) == (0, "2: Build it\nWith sessions.\n")
    as_json = msgspec.json.decode((await user.atomic("tasks", "next", "--json", "tasks.json")).stdout)
    assert (as_json["task"]["id"], as_json["ready"], list(as_json["waiting"])) == ("2", ["2"], ["3"])


async def test_next_explains_why_no_task_can_start_and_exits_with_5(user: User) -> None:
    write(user.project / "tasks.json", LIST.replace('"priority": 2', '"status": "failed"'))
    done = await user.atomic("tasks", "next", "tasks.json")
    assert done.exit_code == 5
    assert done.stdout.startswith("No task can start:\n2: failed\n3: ")


async def test_next_of_a_finished_list_is_not_an_error(user: User) -> None:
    write(user.project / "tasks.json", '[{"id": 1, "title": "x", "status": "done"}]')
    done = await user.atomic("tasks", "next", "tasks.json")
    assert (done.exit_code, done.stdout) == (0, "All tasks are done.\n")


async def test_check_names_every_problem_with_its_file(user: User) -> None:
    write(user.project / "tasks.json", CIRCLE.replace('"title": "B"', '"title": "B", "status": "odd"'))
    done = await user.atomic("tasks", "check", "tasks.json")
    assert (done.exit_code, done.stderr) == (1, "")
    assert len(done.stdout.splitlines()) == 2
    assert all(line.startswith("tasks.json: ") for line in done.stdout.splitlines())
    as_json = msgspec.json.decode((await user.atomic("tasks", "check", "tasks.json", "--json")).stdout)
    assert {problem["kind"] for problem in as_json["problems"]} == {"cycle", "unknown_status"}


async def test_check_confirms_a_good_list(user: User) -> None:
    write(user.project / "tasks.json", LIST)
    done = await user.atomic("tasks", "check", "tasks.json")
    assert (done.exit_code, done.stdout) == (0, "3 tasks: 2 pending, 1 completed, no problems\n")


async def test_convert_keeps_a_task_list_unchanged(user: User) -> None:
    write(user.project / "tasks.json", '[{"id": "#1", "name": "a", "status": "done"}, {"id": 2, "dependencies": [1]}]')
    done = await user.atomic("tasks", "convert", "tasks.json")
    tasks = msgspec.json.decode(done.stdout)["tasks"]
    assert [(task["id"], task["title"], task["status"]) for task in tasks] == [
        ("1", "a", "completed"),
        ("2", "Task 2", "pending"),
    ]
    assert tasks[1]["blocked_by"] == ["1"]


async def test_convert_keeps_all_of_the_older_list(user: User) -> None:
    features = '[{"category": "ui", "description": "Show it", "steps": ["open", "look"], "passes": true, "x": 1}]'
    write(user.project / "feature-list.json", features)
    done = await user.atomic("tasks", "convert", "feature-list.json")
    (task,) = msgspec.json.decode(done.stdout)["tasks"]
    assert (task["title"], task["status"]) == ("Show it", "completed")
    assert {"ui", 1} <= {value for value in task["metadata"].values() if isinstance(value, str | int)}

    written = await user.atomic("tasks", "convert", "feature-list.json", "--to", "tasks.json")
    assert (written.exit_code, written.stdout) == (0, "")
    assert (user.project / "tasks.json").read_text() == done.stdout
    again = await user.atomic("tasks", "convert", "feature-list.json", "--to", "tasks.json")
    assert (again.exit_code, complaint(again)) == (2, "tasks.json already exists (choose another name, or remove it)")


@pytest.mark.parametrize("features", [STEPS, CRITERIA, STEPS[13:-1]], ids=["steps", "criteria", "bare"])
async def test_each_verb_reads_a_feature_list(user: User, features: str) -> None:
    write(user.project / "list.json", features)
    shown = await user.atomic("tasks", "show", "list.json")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["1", "completed", "Show", "it"],
        ["2", "pending", "ready", "Hide", "it"],
        ["2", "tasks:", "1", "pending,", "1", "completed"],
    ]
    following = await user.atomic("tasks", "next", "list.json")
    assert (following.exit_code, following.stdout) == (0, "2: Hide it\nHide it\n- close\n")
    checked = await user.atomic("tasks", "check", "list.json")
    assert (checked.exit_code, checked.stdout) == (0, "2 tasks: 1 pending, 1 completed, no problems\n")
    converted = await user.atomic("tasks", "convert", "list.json")
    assert (converted.exit_code, converted.stderr) == (0, "")
    tasks = msgspec.json.decode(converted.stdout)["tasks"]
    assert [(task["id"], task["status"], task["acceptance"]) for task in tasks] == [
        ("1", "completed", ["open", "look"]),
        ("2", "pending", ["close"]),
    ]


@pytest.mark.parametrize("verb", ["show", "next", "check", "convert"])
async def test_an_invalid_list_is_one_line_and_exit_code_2(user: User, verb: str) -> None:
    missing = await user.atomic("tasks", verb, "nowhere.json")
    assert (missing.exit_code, "nowhere.json" in complaint(missing)) == (2, True)
    write(user.project / "odd.json", '"hello"')
    odd = await user.atomic("tasks", verb, "odd.json")
    assert (odd.exit_code, "odd.json" in complaint(odd)) == (2, True)


async def test_a_title_cannot_write_to_the_terminal(user: User) -> None:
    write(user.project / "tasks.json", '[{"id": 1, "title": "a\\u001b]0;x\\u0007b"}]')
    assert "\x1b" not in (await user.atomic("tasks", "show", "tasks.json")).stdout
    assert "\x1b" not in (await user.atomic("tasks", "next", "tasks.json")).stdout
