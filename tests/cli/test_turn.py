"""`atomic -p` with a recording: its output, and the exit code of each end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from atomic.processes import ExecResult, running
from atomic.providers.programs import start_seconds
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint, objects, told
from tests.support.waits import eventually

Event = Mapping[str, Any]


def text(words: str, **more: Any) -> Event:
    return {"type": "text_delta", "text": words, **more}


def question(words: str, **more: Any) -> Event:
    return {"type": "question_asked", "questions": [{"text": words, **more}]}


def end(reason: str = "done", **more: Any) -> Event:
    return {"type": "turn_ended", "reason": reason, **more}


def record(user: User, *events: Event, pause: float = 0) -> str:
    """Write a recording with one call that answers anything; the name of its agent."""
    timed = [[number * pause, event] for number, event in enumerate(events)]
    lines = ({"atomic_recording": 1}, {"match": "", "events": timed})
    (user.home / "recording.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
    return f"replay:{user.home}/recording.jsonl"


async def play(user: User, *events: Event, flags: tuple[str, ...] = ()) -> ExecResult:
    """Run one turn with these events."""
    return await user.atomic("-p", "go on", "-a", record(user, *events), *flags)


@pytest.mark.parametrize(
    ("reason", "code", "said"),
    [
        ("done", 0, ""),
        ("error", 1, "replay: the turn failed"),
        ("refused", 1, "replay: the agent refused"),
        ("max_turns", 1, "replay: the agent reached its limit of turns before it was done"),
        ("limit", 7, "replay: the agent's usage limit is reached: try again later"),
        ("interrupted", 130, "interrupted"),
    ],
)
async def test_the_exit_code_depends_on_the_end_of_the_turn(user: User, reason: str, code: int, said: str) -> None:
    done = await play(user, text("Well."), end(reason, text="Well."))
    assert (done.exit_code, done.stdout) == (code, "Well.\n")
    assert done.stderr == (f"atomic: {said}\n" if said else "")
    done = await play(user, text("Well."), end(reason, text="Well."), flags=("--output", "json"))
    (last,) = objects(done)
    assert (done.exit_code, last["reason"], last["text"], last["error"]) == (code, reason, "Well.", said or None)


async def test_why_a_turn_failed_is_one_line(user: User) -> None:
    done = await play(user, end("error", error="it broke\n  at line 3\x1b[2J\n"))
    assert (done.exit_code, complaint(done)) == (1, "replay: it broke at line 3␛[2J")


async def test_a_limit_is_reported_with_its_reset_time(user: User) -> None:
    limit = {"type": "limit_reached", "reset_at": "2030-01-02T03:04:00Z", "message": "too many requests"}
    done = await play(user, limit, end("limit", error="429"))
    assert done.stderr.splitlines() == [
        "atomic: the agent's usage limit is reached: too many requests (until 2030-01-02 03:04 UTC)",
        "atomic: replay: 429",
    ]


async def test_only_text_of_the_agent_itself_is_the_answer(user: User) -> None:
    thinking = {"type": "thinking_delta", "text": "hm"}
    notice = {"type": "notice", "text": "by the way"}
    done = await play(user, thinking, text("No", agent="sub-1"), notice, text("Yes."), end(text="Yes."))
    assert (done.stdout, told(done)) == ("Yes.\n", "by the way")


async def test_an_answer_that_was_not_streamed_is_shown_too(user: User) -> None:
    assert (await play(user, end(text="All at once."))).stdout == "All at once.\n"
    assert (await play(user, end())).stdout == ""


async def test_every_event_is_a_line_of_stream_json(user: User) -> None:
    events = [
        {"type": "tool_started", "id": "1", "name": "Bash", "input": {"command": "ls"}, "agent": None},
        {"type": "tool_ended", "id": "1", "output": "x", "error": None, "agent": None},
        {"type": "text_delta", "text": "“zwei”\nZeile\n", "agent": None},
    ]
    done = await play(
        user, *events, end(text="Zeile", usage={"input": 1, "cost": 0.5}), flags=("--output", "stream-json")
    )
    *told_events, last = objects(done)
    assert told_events == events
    session = last["session"]
    assert isinstance(session, str)
    usage = {"input": 1, "output": 0, "cached": 0, "cost": 0.5}
    assert last == {
        "type": "turn_ended", "reason": "done", "text": "Zeile", "usage": usage, "session": session, "error": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("agent", "code", "message"),
    [
        ("cluade", 2, 'Unknown agent: "cluade" (did you mean "claude"?)'),
        ("replay:nowhere.jsonl", 2, "nowhere.jsonl: No such file or directory"),
        ("replay:.", 2, ".: this is not a regular file"),
    ],
)
async def test_json_reports_that_there_was_no_turn(user: User, agent: str, code: int, message: str) -> None:
    for output in ("json", "stream-json"):
        done = await user.atomic("-p", "hello", "-a", agent, "--output", output)
        assert objects(done) == [{"type": "error", "exit_code": code, "message": message}]
        assert (done.exit_code, told(done)) == (code, message)


async def test_a_prompt_that_was_not_recorded_shows_the_difference(user: User) -> None:
    agent = record(user, end())
    (user.home / "recording.jsonl").write_text(
        '{"atomic_recording": 1}\n{"prompt": "one\\ntwo", "match": "two", "events": []}\n'
    )
    done = await user.atomic("-p", "one\nthree", "-a", agent)
    assert done.exit_code == 1
    assert 'has "two" where the prompt has "three"' in done.stderr
    assert done.stderr.count("\n") == 1


async def test_a_question_without_a_terminal_gets_its_default(user: User) -> None:
    done = await play(user, question("Go on?", options=[{"label": "Yes"}], default="Yes"), text("Fine."), end())
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Fine.\n", "")


async def test_a_question_without_a_default_ends_the_turn(user: User) -> None:
    done = await play(user, question("Go\non?", options=[{"label": "Yes"}]), text("Fine."), end())
    message = 'the agent asks "Go on?" and there is no one to answer (say it in the prompt, or run it in a terminal)'
    assert (done.exit_code, complaint(done)) == (5, message)


async def test_a_terminal_shows_one_question_at_a_time(user: User) -> None:
    first = question("Which?", options=[{"label": "a"}, {"label": "b"}, {"label": "c"}], multi_select=True)
    agent = record(user, first, question("Sure?", default="no"), text("Thanks."), end())
    async with in_terminal((ATOMIC, "-p", "x", "-a", agent), env=user.env, cwd=user.project) as terminal:
        await terminal.shows("? Which?\n  1. a\n  2. b\n  3. c\nnumbers, with commas between them> ")
        terminal.type("1,c\r")
        await terminal.shows("? Sure?\nanswer [no]> ")
        terminal.type("\r")
        await terminal.shows("Thanks.\n")
        assert await terminal.exit_code() == 0


async def test_who_does_not_want_to_answer_need_not(user: User) -> None:
    agent = record(user, question("Which?"), end())
    for key, code in (("\x04", 5), ("\x03", 130)):
        async with in_terminal((ATOMIC, "-p", "x", "-a", agent), env=user.env, cwd=user.project) as terminal:
            await terminal.shows("answer> ")
            terminal.type(key)
            assert await terminal.exit_code() == code


async def test_an_answer_cannot_control_the_terminal(user: User) -> None:
    tool = {"type": "tool_started", "id": "1", "name": "B\x1b[2J", "input": {"n": 1, "command": "ls\x1b]0;x\x07\nrm"}}
    agent = record(user, text("red \x1b[31m\u202e."), tool, text("\tDone.\n"), end())
    async with in_terminal((ATOMIC, "-p", "x", "-a", agent), env=user.env, cwd=user.project) as terminal:
        await terminal.shows("Done.")
        assert await terminal.exit_code() == 0
        assert terminal.screen == "red ␛[31m�.\n[B␛[2J] ls␛]0;x␇ rm\n\n\tDone.\n"
    done = await user.atomic("-p", "x", "-a", agent)
    assert done.stdout == "red \x1b[31m\u202e.\n\n\tDone.\n"  # a file gets the text unchanged


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "input", "prompt"),
    [
        (["-p", "say", "it"], None, "say it"),
        (["-p", "say it"], "and this\n", "say it\n\nand this"),
        (["-p"], "only this\n\n", "only this"),
        (["-p", "-"], "only this", "only this"),
        (["-p", "say it", "-"], "and this", "say it\n\nand this"),
        (["-p", "say it"], b"half a \xe2\x82 character", "say it\n\nhalf a � character"),
        (["-p", "--", "--help"], None, "--help"),
        (["-p", "x" * 100_000], "y" * 1_000_000, "x" * 100_000 + "\n\n" + "y" * 1_000_000),
    ],
)
async def test_the_prompt_is_the_arguments_and_the_piped_text(
    user: User, words: list[str], input: str | bytes | None, prompt: str
) -> None:
    user.env["ATOMIC_AGENT"] = record(user, end(text="ok"))
    done = await user.atomic(*_with_flag(words, "--record=again.jsonl"), input=input)
    assert (done.exit_code, done.stderr) == (0, "")
    call = msgspec.json.decode((user.project / "again.jsonl").read_bytes().splitlines()[1])
    assert call["prompt"] == prompt


def _with_flag(words: list[str], flag: str) -> list[str]:
    return [flag, *words]


@pytest.mark.ci
async def test_waiting_for_an_open_pipe_is_reported(user: User) -> None:
    user.env["ATOMIC_AGENT"] = record(user, text("Ok."), end())
    async with running(ATOMIC, "-p", "x", cwd=user.project, env=user.env) as program:
        async with asyncio.timeout(60):
            await eventually(lambda: "waiting for the end of standard input" in program.stderr_tail)
            assert program.stdin is not None
            program.stdin.close()
            assert await program.stdout.read() == b"Ok.\n"
            assert await program.wait() == 0


@pytest.mark.ci
async def test_ctrl_c_while_waiting_for_input_ends_it(user: User) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        async with running(ATOMIC, "-p", "x", cwd=user.project, env=user.env) as program:
            async with asyncio.timeout(60):
                await eventually(lambda: "waiting for" in program.stderr_tail)
                os.kill(program.pid, number)
                assert await program.wait() == code
            assert "Traceback" not in program.stderr_tail


@pytest.mark.ci
async def test_a_reader_who_does_not_read_does_not_keep_ctrl_c_from_working(user: User) -> None:
    agent = record(user, *(text("x\n" * 50_000) for _ in range(20)), end())
    unread, output = os.pipe()
    program = await asyncio.create_subprocess_exec(
        ATOMIC, "-p", "x", "-a", agent, env=user.env, cwd=user.project, stdin=subprocess.DEVNULL, stdout=output
    )
    try:
        async with asyncio.timeout(60):
            while select.select([], [output], [], 0)[1]:  # a full pipe may hold less than its size
                await asyncio.sleep(0.01)
            program.send_signal(signal.SIGINT)
            assert await program.wait() == 130
    finally:
        os.close(output)
        os.close(unread)
        if program.returncode is None:
            program.kill()
            await program.wait()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["INT", "TERM", "HUP"]
)
async def test_a_signal_stops_the_turn(user: User, number: int, code: int) -> None:
    agent = record(user, *(text(f"word{count}\n") for count in range(1_000)), end(), pause=0.1)
    words = ("-p", "x", "-a", agent, "--output", "stream-json")
    async with running(ATOMIC, *words, cwd=user.project, env=user.env, stdin=False) as program:
        async with asyncio.timeout(60):
            while b"word3" not in await program.stdout.readline():
                pass
            os.kill(program.pid, number)
            *_, last = (await program.stdout.read()).splitlines()
            assert await program.wait() == code
    ended = msgspec.json.decode(last)
    assert (ended["type"], ended["reason"]) == ("turn_ended", "interrupted")
    assert ended["text"].startswith("word0\nword1\nword2\nword3\n")
    assert program.stderr_tail == "atomic: interrupted"


@pytest.mark.ci
async def test_a_reader_who_goes_does_not_end_the_turn(user: User) -> None:
    gone, output = os.pipe()
    os.close(gone)
    agent = record(user, text("Ok."), text("x" * 1_000_000), end())
    words = (ATOMIC, "-p", "x", "-a", agent, "--record", "again.jsonl")
    process = subprocess.Popen(
        words, env=user.env, cwd=user.project, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE
    )
    os.close(output)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    assert b'"turn_ended"' in (user.project / "again.jsonl").read_bytes()


async def test_a_full_disk_is_reported(user: User) -> None:
    agent = record(user, text("x" * 10_000), end())
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [ATOMIC, "-p", "x", "-a", agent],
            env=user.env, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"atomic: standard output could not take all of it: No space left on device\n"


@pytest.mark.ci
async def test_a_turn_that_cannot_be_recorded_does_not_begin(user: User) -> None:
    agent = record(user, text("Ok."), end())
    for file in ("no/such/file", "."):
        done = await user.atomic("-p", "x", "-a", agent, "--record", file)
        assert done.exit_code == 2
        assert complaint(done).startswith("--record cannot write to /")


@pytest.mark.ci
async def test_a_recording_can_be_played(user: User) -> None:
    first = await user.atomic("-p", "x", "-a", record(user, text("Ok."), end()), "--record", "again.jsonl")
    again = await user.atomic("-p", "x", "-a", "replay:again.jsonl")
    assert first.stdout == again.stdout == "Ok.\n"


@pytest.mark.ci
async def test_an_agent_that_would_run_a_strangers_code_is_not_started(user: User) -> None:
    plugin = user.project / ".opencode" / "plugin" / "evil.js"
    plugin.parent.mkdir(parents=True)
    plugin.write_text("export const Evil = async () => { throw new Error('evil') }")
    user.env |= {"ATOMIC_OPENCODE_PATH": os.environ["ATOMIC_OPENCODE_PATH"], "ANTHROPIC_API_KEY": "x"}
    done = await user.atomic("-p", "x", "-a", "opencode")
    assert done.exit_code == 4
    assert ".opencode/plugin/evil.js" in complaint(done)


@pytest.mark.ci
async def test_a_folder_that_is_gone_is_one_line(user: User) -> None:
    agent = record(user, end())
    code = f"rmdir {user.project}; exec {ATOMIC} -p x -a {agent}"
    done = subprocess.run(
        ["sh", "-c", code], cwd=user.project, env=user.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "atomic: the current folder no longer exists (change to another one)\n"


@pytest.mark.ci
async def test_an_internal_error_is_one_line_too(user: User) -> None:
    broken = user.home / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import atomic.config\natomic.config.load_settings = None\n")
    user.env["PYTHONPATH"] = str(broken)
    done = await user.atomic("-p", "x")
    assert done.exit_code == 1
    assert complaint(done) == (
        "internal error: TypeError: 'NoneType' object is not callable (ATOMIC_DEBUG=1 shows where)"
    )
    user.env["ATOMIC_DEBUG"] = "1"
    done = await user.atomic("-p", "x")
    assert done.exit_code == 1
    assert "Traceback" in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize("agent", ["claude", "acp:slow"])
async def test_an_agent_that_has_not_started_in_time_is_an_error(user: User, agent: str) -> None:
    hangs = (
        "import sys, time\nif '--version' in sys.argv:\n    print('2.1.0 (Claude Code)')\nelse:\n    time.sleep(600)\n"
    )
    user.has_only_claude(hangs)
    user.has("slow", hangs)
    user.sets('[acp.slow]\ncommand = ["slow"]\n')
    user.env["ATOMIC_START_SECONDS"] = "2"
    done = await user.atomic("-p", "hi", "--agent", agent, timeout=60)
    assert done.exit_code == 1
    last = done.stderr.splitlines()[-1]
    assert "did not start within 2 s" in last
    assert last.endswith("or give it more time: ATOMIC_START_SECONDS=120)")  # the agent is not tried once more


def test_an_agent_has_thirty_seconds_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, seconds in (("", 30), ("soon", 30), ("-1", 30), ("nan", 30), ("90", 90)):
        monkeypatch.setenv("ATOMIC_START_SECONDS", value)
        assert start_seconds() == seconds
