from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from atomic.tasks import NoTaskListError, Task, TaskFileError, TaskList, TasksError, TaskStatus


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.json"


def test_a_written_list_is_read_again(path: Path) -> None:
    tasks = TaskList([Task("1", "Grüße", priority=1), Task("2", "y", blocked_by=["1"])], metadata={"goal": "shop"})
    tasks.write(path)
    again = TaskList.read(str(path))
    assert (again.tasks, again.metadata, again.problems) == (tasks.tasks, {"goal": "shop"}, ())


def test_the_file_has_every_field_in_one_order(path: Path) -> None:
    TaskList([Task("1", "x", metadata={"b": 1, "a": 2})]).write(path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "version": "1.0",\n  "tasks": [\n    {\n      "id": "1",\n      "title": "x",\n')
    assert text.endswith("}\n")
    data = json.loads(text)
    assert list(data) == ["version", "tasks", "metadata"]
    assert list(data["tasks"][0].items()) == [
        ("id", "1"),
        ("title", "x"),
        ("description", ""),
        ("status", "pending"),
        ("priority", None),
        ("blocked_by", []),
        ("acceptance", []),
        ("metadata", {"a": 2, "b": 1}),
    ]
    assert list(data["tasks"][0]["metadata"]) == ["a", "b"]


def test_a_change_is_in_the_next_file(path: Path) -> None:
    tasks = TaskList([Task("1", "x")])
    tasks.set_status("1", TaskStatus.IN_PROGRESS)
    tasks.write(path)
    assert json.loads(path.read_text())["tasks"][0]["status"] == "in_progress"
    assert [task.id for task in TaskList.read(path).ready()] == ["1"]


def test_the_file_is_private_and_nothing_else_is_left(path: Path) -> None:
    path.write_text("[]")
    TaskList([Task("1", "x")]).write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["tasks.json"]


def test_a_name_without_a_folder_is_in_the_current_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    TaskList([Task("1", "x")]).write("tasks.json")
    assert TaskList.read("tasks.json").tasks == TaskList.read(path).tasks


def test_file_and_folder_are_synced_around_the_rename(path: Path) -> None:
    calls: list[str] = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and getattr(arg, "__module__", "") == "posix":
            calls.append(arg.__name__)

    tasks = TaskList([Task("1", "x")])
    sys.setprofile(note)
    try:
        tasks.write(path)
    finally:
        sys.setprofile(None)
    assert [name for name in calls if name in ("fsync", "rename")] == ["fsync", "rename", "fsync"]


def test_a_list_that_cannot_be_written_leaves_the_old_one(path: Path) -> None:
    path.mkdir()
    with pytest.raises(TaskFileError, match=r'Task list cannot be written: ".*tasks.json": Is a directory'):
        TaskList([Task("1", "x")]).write(path)
    assert os.listdir(path.parent) == ["tasks.json"]
    with pytest.raises(TaskFileError, match="No such file or directory"):
        TaskList([]).write(path / "nowhere" / "tasks.json")


@pytest.mark.ci
def test_readers_find_a_complete_list_although_the_writer_is_killed(path: Path) -> None:
    script = (
        "import sys\nfrom atomic.tasks import Task, TaskList\n"
        "lists = [TaskList([Task(str(n), str(size)) for n in range(size)]) for size in (1, 2000)]\n"
        "while True:\n    for tasks in lists: tasks.write(sys.argv[1])\n"
        "    print(flush=True)\n"
    )
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE)
        with writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            seen = {len(TaskList.read(path).tasks) for _ in range(50)}
            writer.send_signal(signal.SIGKILL)
        seen.add(len(TaskList.read(path).tasks))
        assert seen <= {1, 2000}


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 300 * 1024**2)


def circle(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.exists, "No such file or directory"),
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (circle, "symbolic links"),
        (device, "not a regular file"),
        (huge, "longer than 268,435,456 bytes"),
    ],
)
def test_a_path_that_is_not_a_regular_file_is_refused_and_does_not_hang(
    make: Callable[[Path], object], reason: str, path: Path
) -> None:
    make(path)
    open_files = os.listdir("/dev/fd")
    with pytest.raises(TaskFileError) as caught:
        TaskList.read(path)
    assert str(caught.value).startswith(f'Task list cannot be read: "{path}": ')
    assert reason in str(caught.value)
    assert os.listdir("/dev/fd") == open_files


def test_an_impossible_path_is_refused() -> None:
    with pytest.raises(TaskFileError, match="null"):
        TaskList.read("a\0b")
    with pytest.raises(TaskFileError, match="null"):
        TaskList([]).write("a\0b")


def test_a_file_that_is_not_a_task_list_is_named(path: Path) -> None:
    path.write_text("# Tasks\n- [ ] log in")
    with pytest.raises(NoTaskListError, match=f'No task list: "{path}": Expecting value') as caught:
        TaskList.read(path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_values_that_are_not_data_cannot_be_written(value: object, path: Path) -> None:
    with pytest.raises(TasksError, match="cannot be written as JSON"):
        TaskList([Task("1", "x", metadata={"a": value})]).write(path)
    assert os.listdir(path.parent) == []
