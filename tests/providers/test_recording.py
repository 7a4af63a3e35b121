"""Test `SessionOptions.record`: one line per call with prompt, timed events, commits and patch."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import (
    AgentEvent,
    Capabilities,
    EndReason,
    LimitReached,
    Notice,
    SessionOptions,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Usage,
)
from atomic.providers import recording as recording_module
from atomic.providers.prompt_title import role_and_task
from atomic.providers.recording import RecordingError, append, read_recording
from atomic.providers.turn import Turn
from tests.providers.scripted import Play, ScriptedProvider, ScriptedSession, read
from tests.support.repositories import commit, git, new_repository, write
from tests.support.timing import judge

PROMPT = "[atomic role=worker task=3 attempt=1]\nWrite it."


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def working(work: Callable[[], object] = lambda: None, *events: AgentEvent) -> Play:
    """Return a turn that emits events and does some work."""

    async def play(session: ScriptedSession, turn: Turn) -> None:
        for event in events:
            turn.emit(event)
        await asyncio.to_thread(work)
        turn.end(EndReason.DONE, usage=Usage(1, 2))

    return play


async def record(file: Path, cwd: Path, *plays: Play, prompt: str = PROMPT, **options: Any) -> list[AgentEvent]:
    """Record one call for each play and return the events of the last."""
    events: list[AgentEvent] = []
    provider = ScriptedProvider(*plays, capabilities=Capabilities(system_prompt=True))
    async with provider.open(SessionOptions(cwd=cwd, record=file, **options)) as session:
        for _ in plays:
            events = await read(session, prompt)
    return events


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project", {"a": "1\n"})


async def test_a_call_is_recorded_as_one_line(tmp_path: Path, project: Path) -> None:
    def work() -> None:
        write(project, {"b": "new\n"})
        commit(project, "Add b")
        write(project, {"a": "2\n"})

    file = tmp_path / "rec.jsonl"
    emitted = (TextDelta("hi"), ToolStarted("1", "bash", {"command": "x"}), ToolEnded("1", "ok"))
    events = await record(file, project, working(work, *emitted), model="small", system_prompt="be brief")
    header, call = lines(file)
    assert header["atomic_recording"] == 1
    assert isinstance(header["command"], list)
    assert header["command"]
    assert {name: call[name] for name in ("role", "task", "prompt", "match")} == {
        "role": "worker",
        "task": "3",
        "prompt": PROMPT,
        "match": None,
    }
    assert [event for _, event in call["events"]] == [msgspec.to_builtins(event) for event in events]
    times = [seconds for seconds, _ in call["events"]]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] < 60
    assert len(call["commits"]) == 1
    assert "Subject: [PATCH] Add b" in call["commits"][0]
    assert "+2" in call["patch"]
    assert "b/b" not in call["patch"]
    assert (call["provider"], call["session"], call["model"]) == ("scripted", "scripted-1", "small")
    assert call["options"]["system_prompt"] == "be brief"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_times_do_not_depend_on_a_slow_reader(tmp_path: Path, project: Path) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(TextDelta("at once"))
        await asyncio.sleep(0.3)
        turn.emit(TextDelta("later"))
        turn.end(EndReason.DONE)

    file = tmp_path / "rec.jsonl"
    async with ScriptedProvider(play).open(SessionOptions(cwd=project, record=file)) as session:
        async for _ in session.send("go"):
            await asyncio.sleep(0.5)
    (first, _), (second, _), _ = lines(file)[1]["events"]
    assert 0.25 < second - first < 0.45


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("[atomic role=planner attempt=1]\nx", ("planner", None)),
        ("[atomic role=worker task=a.b-3 attempt=2]", ("worker", "a.b-3")),
        ("Please\n[atomic role=worker task=3 attempt=1]", (None, None)),
        ("[atomic]", (None, None)),
        ("hello", (None, None)),
        ("", (None, None)),
    ],
)
def test_role_and_task_come_from_the_first_line(prompt: str, expected: tuple[str | None, str | None]) -> None:
    assert role_and_task(prompt) == expected


async def test_the_users_index_and_refs_are_not_touched(tmp_path: Path, project: Path) -> None:
    write(project, {"staged": "x\n", "a": "mine\n"})
    git(project, "add", "staged")
    before = {path: path.read_bytes() for path in (project / ".git").rglob("*") if path.is_file()}
    await record(tmp_path / "rec.jsonl", project, working(lambda: write(project, {"c": "new\n"})))
    assert {path: path.read_bytes() for path in (project / ".git").rglob("*") if path.is_file()} == before
    assert "+new" in lines(tmp_path / "rec.jsonl")[1]["patch"]


async def test_a_recording_within_the_project_is_not_in_its_patch(project: Path) -> None:
    file = project / "rec.jsonl"
    await record(file, project, working(lambda: append(file, {"events": []})))  # as another session does
    assert lines(file)[2]["patch"] == ""


async def test_a_folder_without_git_is_recorded_too(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    write(folder, {"a": "1\n"})
    await record(tmp_path / "rec.jsonl", folder, working(lambda: write(folder, {"a": "2\n"})))
    assert "+2" in lines(tmp_path / "rec.jsonl")[1]["patch"]


async def test_no_secret_is_written(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "open-sesame-42")
    token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"

    def work() -> None:
        write(project, {"env": "TOKEN=open-sesame-42\n"})
        commit(project, "Add open-sesame-42")
        write(project, {"b": f"{token}\nplain line\n"})
        (project / "bytes").write_bytes(b"\0\1open-sesame-42\0")

    events = (
        TextDelta("it is open-"),
        ThinkingDelta("open-"),
        TextDelta("sesame-42, "),
        ThinkingDelta("sesame-42"),
        TextDelta(token[:20]),
        TextDelta(token[20:]),
        ToolStarted("1", "bash", {"env": {"password": "hunter2hunter2"}, "command": ["echo", "open-sesame-42"]}),
        ToolOutput("1", "another-known"),
        ToolOutput("1", "-secret"),
        ToolEnded("1", "open-sesame-42"),
        Notice("ok"),
    )
    file = tmp_path / "rec.jsonl"
    received = await record(
        file,
        project,
        working(work, *events),
        prompt="use open-sesame-42",
        env={"OTHER_KEY": "another-known-secret"},
        system_prompt="never print open-sesame-42",
    )
    text = file.read_text()
    for secret in ("open-sesame-42", token, token[20:], "another-known", "-secret", "hunter2", "sesame"):
        assert secret not in text
    assert received[:2] == list(events[:2])  # the caller gets them unchanged
    call = lines(file)[1]
    assert [event.get("text") for _, event in call["events"]][:3] == ["it is [redacted]", "[redacted]", ", "]
    assert call["left_out"] == ["bytes"]
    assert "plain line" in call["patch"]
    assert any("bytes" in event.text for event in received if isinstance(event, Notice))


async def test_keys_in_the_settings_are_redacted(tmp_path: Path, project: Path) -> None:
    settings = Settings(providers={"claude": ProviderSettings(env={"ANTHROPIC_API_KEY": "over-the-hills"})})
    provider = ScriptedProvider(working(lambda: None, TextDelta("over-the-hills")), settings=settings)
    file = tmp_path / "rec.jsonl"
    async with provider.open(SessionOptions(cwd=project, record=file)) as session:
        await read(session)
    assert lines(file)[1]["events"][0][1]["text"] == "[redacted]"


async def test_bytes_of_an_image_are_not_redacted(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = random.Random(1).randbytes(20_000)
    for name in ("first.jsonl", "rec.jsonl"):
        await record(tmp_path / name, project, working(lambda: (project / "p").write_bytes(image)))
        (project / "p").unlink()
        encoded = lines(tmp_path / name)[1]["patch"].splitlines()[6]
        # Git's encoding of bytes may contain any text.
        monkeypatch.setenv("MY_SECRET", encoded[10:30])
    (tmp_path / "patch").write_text(lines(tmp_path / "rec.jsonl")[1]["patch"])
    git(project, "apply", str(tmp_path / "patch"))
    assert (project / "p").read_bytes() == image


async def test_half_characters_do_not_stop_a_recording(tmp_path: Path, project: Path) -> None:
    await record(tmp_path / "rec.jsonl", project, working(lambda: None, TextDelta("half \udce9")), prompt="\ud800")
    assert lines(tmp_path / "rec.jsonl")[1]["events"][0][1]["text"] == "half ?"


async def test_a_turn_that_is_not_read_to_the_end_is_recorded_as_interrupted(tmp_path: Path, project: Path) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        write(project, {"half": "done\n"})
        turn.emit(TextDelta("working"))
        await session.stopped.wait()
        turn.end(EndReason.ERROR)

    file = tmp_path / "rec.jsonl"
    options = SessionOptions(cwd=project, record=file)
    async with ScriptedProvider(play).open(options) as session, aclosing(session.send("go")) as turn:
        await anext(turn)
    call = lines(file)[1]
    assert call["events"][-1][1]["reason"] == "interrupted"
    assert "+done" in call["patch"]


async def test_events_after_the_end_are_not_recorded(tmp_path: Path, project: Path) -> None:
    async def play(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.DONE)
        turn.emit(TextDelta("after the end"))

    await record(tmp_path / "rec.jsonl", project, play)
    assert "after the end" not in (tmp_path / "rec.jsonl").read_text()


async def test_the_line_is_written_before_the_end_is_emitted(tmp_path: Path, project: Path) -> None:
    file = tmp_path / "rec.jsonl"
    async with ScriptedProvider(working()).open(SessionOptions(cwd=project, record=file)) as session:
        async for event in session.send("go"):
            if isinstance(event, TurnEnded):
                assert len(lines(file)) == 2
                break


async def test_an_interrupt_before_the_agent_starts_is_recorded(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    async def stop(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.INTERRUPTED)

    file = tmp_path / "rec.jsonl"
    provider = ScriptedProvider(working(), stop=stop)
    async with provider.open(SessionOptions(cwd=project, record=file)) as session:
        turn = session.send("go")
        reading = asyncio.ensure_future(anext(turn))
        await asyncio.sleep(0)
        await session.interrupt()
        assert await reading == TurnEnded(EndReason.INTERRUPTED)
        await turn.aclose()
        assert isinstance(session, ScriptedSession)
        assert session.prompts == []
    assert len(lines(file)) == 2
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("target", ["no folder", "a folder", "another file", "a newer one"])
async def test_a_recording_that_cannot_be_written_is_reported_once(tmp_path: Path, project: Path, target: str) -> None:
    file = tmp_path / "rec.jsonl"
    match target:
        case "no folder":
            file = tmp_path / "nowhere" / "rec.jsonl"
        case "a folder":
            file.mkdir()
        case "another file":
            file.write_text("# My notes\n")
        case _:
            file.write_text('{"atomic_recording": 2}\n')
    before = file.read_bytes() if file.is_file() else None
    async with ScriptedProvider(working()).open(SessionOptions(cwd=project, record=file)) as session:
        first = await read(session)
        second = await read(session)
    assert [type(event) for event in first] == [Notice, TurnEnded]
    assert isinstance(first[0], Notice)
    assert "could not be written" in first[0].text
    assert [type(event) for event in second] == [TurnEnded]
    assert (file.read_bytes() if file.is_file() else None) == before


async def test_a_call_is_recorded_with_a_notice_if_its_files_cannot_be(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".git" / "index").write_bytes(b"garbage")
    events = await record(tmp_path / "rec.jsonl", project, working())
    assert isinstance(events[0], Notice)
    assert "not recorded" in events[0].text
    assert lines(tmp_path / "rec.jsonl")[1]["patch"] == ""

    monkeypatch.setattr(recording_module, "GIT_SECONDS", 0.0)
    events = await record(tmp_path / "other.jsonl", project, working())
    assert isinstance(events[0], Notice)
    assert "took longer" in events[0].text
    assert len(lines(tmp_path / "other.jsonl")) == 2


@pytest.mark.timed
async def test_recording_a_turn_is_fast_in_a_large_project(tmp_path: Path, project: Path) -> None:
    write(project, {f"src/{n}.py": f"x = {n}\n" for n in range(2000)})
    commit(project, "many files")
    began = time.process_time()
    await record(tmp_path / "rec.jsonl", project, working(lambda: write(project, {"src/1.py": "y\n"})))
    judge(time.process_time() - began, 2)


async def test_parallel_sessions_write_whole_lines(tmp_path: Path, project: Path) -> None:
    file = tmp_path / "rec.jsonl"
    text = "x" * 300_000
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(record(file, project, working(lambda: None, TextDelta(text)), prompt=f"p{number}"))
    calls = read_recording(file).calls
    assert sorted(call.prompt for call in calls) == [f"p{number}" for number in range(6)]


def _append_many(file: Path, index: int) -> None:
    for number in range(25):
        append(file, {"prompt": f"{index}-{number}", "events": [], "patch": "x" * 100_000})


def test_parallel_processes_write_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "rec.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(file, index)) for index in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert len(read_recording(file).calls) == 75


@pytest.mark.parametrize("time", [1_900_000_000, 1_900_000_000.0, "2030-03-17T17:46:40Z"])
def test_a_time_may_be_seconds_or_a_date(tmp_path: Path, time: object) -> None:
    file = tmp_path / "run.jsonl"
    append(file, {"events": [[0, {"type": "limit_reached", "reset_at": time}]]})
    ((_, event),) = read_recording(file).calls[0].events
    assert isinstance(event, LimitReached)
    assert event.reset_at is not None
    assert event.reset_at.timestamp() == 1_900_000_000


def test_a_truncated_line_is_ignored_and_removed_by_the_next_write(tmp_path: Path) -> None:
    file = tmp_path / "rec.jsonl"
    append(file, {"prompt": "whole", "events": []}, command=["atomic"])
    whole = file.read_bytes()
    for half in (b'{"prompt": "ha', b'{"prompt": "\xc3', b"{"):
        file.write_bytes(whole + half)
        recording = read_recording(file)
        assert [call.prompt for call in recording.calls] == ["whole"]
        assert recording.cut_off == 3
        append(file, {"prompt": "next", "events": []})
        assert [call.prompt for call in read_recording(file).calls] == ["whole", "next"]
    file.write_bytes(whole.rstrip(b"\n"))  # edited by hand, without a newline at the end
    append(file, {"prompt": "next", "events": []})
    assert [call.prompt for call in read_recording(file).calls] == ["whole", "next"]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rec.jsonl"
    append(file, {"prompt": "whole", "events": []})
    before = file.read_bytes()
    real = os.write

    def full(fd: int, data: Any) -> int:
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return real(fd, data[:50])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        append(file, {"prompt": "x" * 200, "events": []})
    monkeypatch.undo()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("", 1, "not a recording"),
        ("hello\n", 1, "not a recording"),
        ('{"atomic_recording": 9}\n', 1, "version 9"),
        ('{"atomic_recording": 1}\n{"prompt": }\n{"events": []}\n', 2, "JSON is malformed"),
        ('{"atomic_recording": 1}\n{"prompt": "x"}\n', 2, "events"),
        ('{"atomic_recording": 1}\n\n{"events": [[0, {"type": "hologram"}]]}\n', 3, "hologram"),
        ('{"atomic_recording": 1}\n{"events": [], "match": "("}\n', 2, "unterminated"),
        ('{"atomic_recording": 1}\n{"events": [[0, {"type": "text_delta"}]]}', 2, "text"),
        ('{"atomic_recording": 1}\n' + "[" * 200_000 + "\n", 2, "rec.jsonl:2"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(tmp_path: Path, content: str, line: int, message: str) -> None:
    file = tmp_path / "rec.jsonl"
    file.write_text(content)
    with pytest.raises(RecordingError, match=message) as caught:
        read_recording(file)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{file}:{line}: ")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        read_recording(tmp_path / "none.jsonl")


READ_AT_ONCE = """
import sys, threading
from pathlib import Path
from atomic.providers.recording import read_recording

sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def read():
    together.wait()
    read_recording(Path(sys.argv[1]))

threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.ci
def test_parallel_reads_do_not_crash_the_interpreter(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_text('{"atomic_recording": 1}\n{"events": [[0, {"type": "turn_ended", "reason": "done"}]]}\n')
    command = [sys.executable, "-c", READ_AT_ONCE, str(path)]
    codes = [subprocess.run(command, timeout=60, check=False).returncode for _ in range(10)]
    assert codes == [0] * 10
