"""`atomic replay`: play recorded calls and make their changes again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.processes import execute
from tests.support import user_workflows as flows
from tests.support.entity_files import write
from tests.support.user import User, complaint, objects

PATCH = """diff --git a/hello.txt b/hello.txt
new file mode 100644
index 0000000..ce01362
--- /dev/null
+++ b/hello.txt
@@ -0,0 +1 @@
+hello
"""


def call(text: str, *, seconds: float = 0.0, **more: Any) -> dict[str, Any]:
    events = [
        [0, {"type": "text_delta", "text": text}],
        [seconds, {"type": "turn_ended", "reason": "done", "text": text, "usage": {"input": 9, "output": 3}}],
    ]
    return {"prompt": f"Say {text}", "events": events, **more}


def recording(user: User, *calls: dict[str, Any]) -> Path:
    lines = [{"atomic_recording": 1, "command": ["atomic", "run", "review", "fix it"]}, *calls]
    return write(user.project / "run.jsonl", "".join(msgspec.json.encode(line).decode() + "\n" for line in lines))


async def test_calls_are_played_in_order(user: User) -> None:
    user.has_no_agents()
    head = "[atomic role=planner]\n"
    recording(user, call("Hello", role="planner", prompt=f"{head}Plan it"), call("Bye", role="worker", task=3))
    done = await user.atomic("replay", "run.jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == (
        "run.jsonl: 2 calls, made by: atomic run review fix it\n"
        "\n[1] planner: Plan it\n\nHello\n\n(done, 12 tokens)\n"
        "\n[2] worker task 3: Say Bye\n\nBye\n\n(done, 12 tokens)\n"
    )


@pytest.mark.parametrize("above", [0, 1])
@pytest.mark.parametrize("verb", [("replay", "{}"), ("-p", "hi", "--agent", "replay:{}")])
async def test_a_recording_changes_no_file_of_the_home_folder(user: User, above: int, verb: tuple[str, ...]) -> None:
    file = recording(user, call("Hello", patch=PATCH.replace("hello.txt", ".bashrc")))
    home = Path(user.env["HOME"])
    folder = (home, home.parent)[above]
    done = await user.atomic(*(word.format(file) for word in verb), cwd=folder)
    assert done.exit_code == 1
    assert "play it in the folder of a project" in done.stderr
    assert not (folder / ".bashrc").exists()


async def test_a_replay_makes_the_recorded_changes(user: User) -> None:
    await execute("git", "init", "-q", cwd=user.project, env=user.env)
    recording(user, call("Hello", patch=PATCH))
    looked = await user.atomic("replay", "run.jsonl", "--no-changes")
    assert "changed hello.txt" in looked.stdout
    assert not (user.project / "hello.txt").exists()
    assert (await user.atomic("replay", "run.jsonl")).exit_code == 0
    assert (user.project / "hello.txt").read_text() == "hello\n"


async def test_a_change_that_does_not_apply_is_reported_and_changes_nothing(user: User) -> None:
    await execute("git", "init", "-q", cwd=user.project, env=user.env)
    mine = write(user.project / "hello.txt", "mine\n")
    recording(user, call("Hello", patch=PATCH), call("Bye"))
    done = await user.atomic("replay", "run.jsonl")
    assert done.exit_code == 1
    assert "the recorded change cannot be made" in done.stderr
    assert "Bye" in done.stdout
    assert mine.read_text() == "mine\n"


MAIL = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] greet\n\n---\n{PATCH}"


async def test_a_replay_takes_back_only_its_own_commits(user: User) -> None:
    async def git(*words: str) -> str:
        done = await execute("git", "-c", "user.name=A", "-c", "user.email=a@b", *words, cwd=user.project, env=user.env)
        return done.stdout

    await git("init", "-q")
    await git("commit", "-q", "--allow-empty", "-m", "first")
    mine = write(user.project / "mine.txt", "precious\n")
    await git("add", "-A")
    await git("commit", "-q", "-m", "mine")
    before = await git("log", "--format=%H")
    recording(user, call("Hello", commits=[MAIL]), call("Oh", rewind=1), call("Bye", rewind=1))
    done = await user.atomic("replay", "run.jsonl")
    assert done.exit_code == 1
    assert done.stderr.count("which this replay has not made") == 1
    assert (await git("log", "--format=%H"), mine.read_text()) == (before, "precious\n")
    assert not (user.project / "hello.txt").exists()


async def test_json_output_has_one_event_per_line(user: User) -> None:
    recording(user, call("Hello", role="planner"))
    said = objects(await user.atomic("replay", "run.jsonl", "--json"))
    assert [(one["type"], one["call"], one["role"]) for one in said] == [
        ("text_delta", 1, "planner"),
        ("turn_ended", 1, "planner"),
    ]


async def test_a_speed_can_be_set(user: User) -> None:
    recording(user, call("Hello", seconds=1.0))
    began = time.monotonic()
    await user.atomic("replay", "run.jsonl")
    assert time.monotonic() - began >= 1.0
    recording(user, call("Hello", seconds=3600.0))
    for words in (("--speed", "max"), ("--speed", "100000")):
        assert (await user.atomic("replay", "run.jsonl", *words, timeout=30)).exit_code == 0
    user.env["ATOMIC_REPLAY_SPEED"] = "max"
    assert (await user.atomic("replay", "run.jsonl", timeout=30)).exit_code == 0


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "nan"])
async def test_an_invalid_speed_is_refused(user: User, speed: str) -> None:
    recording(user, call("Hello"))
    done = await user.atomic("replay", "run.jsonl", f"--speed={speed}")
    assert (done.exit_code, "--speed" in complaint(done)) == (2, True)


async def test_a_file_that_is_no_recording_is_refused_with_file_and_line(user: User) -> None:
    assert (await user.atomic("replay", "nowhere.jsonl")).exit_code == 2
    write(user.project / "odd.jsonl", "hello\n")
    done = await user.atomic("replay", "odd.jsonl")
    assert (done.exit_code, "odd.jsonl:1" in complaint(done)) == (2, True)


async def test_a_recorded_text_cannot_write_to_the_terminal(user: User) -> None:
    recording(user, call("x", prompt="\x1b]0;title\x07", role="\x1b[2J", patch=PATCH.replace("hello.txt", "\x1b[31m")))
    done = await user.atomic("replay", "run.jsonl", "--no-changes")
    assert "\x1b" not in done.stdout


async def test_a_recorded_turn_can_be_replayed(user: User) -> None:
    """`--record` and `replay` are two ends of one thing."""
    first = recording(user, call("Hello"))
    again = user.project / "again.jsonl"
    await user.atomic("-p", "Say Hello", "--agent", f"replay:{first}", "--record", str(again))
    done = await user.atomic("replay", str(again), "--speed", "max")
    assert (done.exit_code, "Hello" in done.stdout) == (0, True)


@pytest.mark.parametrize("kind", ["device", "pipe"])
@pytest.mark.parametrize("verb", [("replay",), ("run", "asks", "-a")])
async def test_a_device_or_a_pipe_is_not_read_as_a_recording(user: User, kind: str, verb: tuple[str, ...]) -> None:
    flows.workflow(user, "asks", "workflow = graph(S).ask_user('q', 'Go on?').compile()\n")
    file = "/dev/zero" if kind == "device" else str(user.project / "pipe")
    if kind == "pipe":
        os.mkfifo(file)
    done = await user.atomic(*verb, file if verb == ("replay",) else f"replay:{file}")
    assert (done.exit_code, "regular file" in complaint(done)) == (2, True), done.stderr
    assert flows.sessions(user) == []
