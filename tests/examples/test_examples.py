"""Each example does what its first lines say, started as a reader would start it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waits import HANG as LIMIT

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(folder: Path, example: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(EXAMPLES / example), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)


def test_hello_counts_words(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    (tmp_path / "b.txt").write_text("four five")
    done = run(tmp_path, "hello.py", "a.txt", "b.txt")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "5 words in 2 files")


def test_hello_goes_on_after_kill_9_without_reading_a_file_twice(tmp_path: Path) -> None:
    names = [f"{number}.txt" for number in range(6)]
    for name in names:
        (tmp_path / name).write_text("word")
    command = [sys.executable, "-P", str(EXAMPLES / "hello.py"), *names]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = [child.stdout.readline(), child.stdout.readline(), child.stdout.readline()]
        child.send_signal(signal.SIGKILL)
        seen = [*first, *child.stdout.readlines()]
    again = run(tmp_path, "hello.py", *names)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "6 words in 6 files")
    assert "(resumed where it stopped)" in again.stdout
    finished_before = {line.split(":")[0].strip() for line in seen[:2]}  # the third may have been cut before its record
    read_again = {line.split(":")[0].strip() for line in again.stdout.splitlines() if line.startswith("  ")}
    assert not finished_before & read_again


def test_ask_later_waits_for_an_answer_from_another_process(tmp_path: Path) -> None:
    asked = run(tmp_path, "ask_later.py")
    assert asked.returncode == 5
    assert "Where do you want to go?" in asked.stdout
    answered = run(tmp_path, "ask_later.py", "to the moon")
    assert (answered.returncode, answered.stdout) == (0, "booked a ticket to the moon, with towel and book\n")


def test_wait_for_signal_continues_with_the_decision_of_another_process(tmp_path: Path) -> None:
    for _ in range(2):
        waiting = run(tmp_path, "wait_for_signal.py")
        assert (waiting.returncode, waiting.stdout.splitlines()[-1]) == (5, "it waits for: decided"), waiting.stderr
    assert run(tmp_path, "wait_for_signal.py", "send", "true", "Ann").returncode == 0
    done = run(tmp_path, "wait_for_signal.py")
    assert (done.returncode, done.stdout) == (0, "approved by Ann\n")


def test_edges_fork_join_and_come_back(tmp_path: Path) -> None:
    done = run(tmp_path, "edges.py")
    assert done.returncode == 0, done.stderr
    assert "completed: draft 2, with 2 remarks answered" in done.stdout


def test_task_list_serves_breakfast_in_the_order_of_the_file(tmp_path: Path) -> None:
    done = run(tmp_path, "task_list.py")
    last = done.stdout.splitlines()[-1]
    assert (done.returncode, last) == (0, "completed: boil water, grind coffee, brew coffee, toast bread, serve")


def test_kill_is_killed_and_comes_to_its_end(tmp_path: Path) -> None:
    done = run(tmp_path, "kill.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "☠ kill -9" in done.stdout
    assert "unit-tests   again, attempt 2" in done.stdout
    assert "shipped: yes" in done.stdout
    assert "recorded and run again: 0" in done.stdout
