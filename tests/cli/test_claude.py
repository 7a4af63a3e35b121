"""`atomic -p` with real Claude Code on a scripted model: output and exit code."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from atomic.processes import Program, running
from atomic.testing import Call, Drip, Fail, ModelServer, claude_env
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint, objects, processes, told
from tests.support.user_workflows import QUESTION
from tests.support.waits import eventually

pytestmark = pytest.mark.ci

SCRIPTS = {
    "hello": "Hello there.",
    "tool": [["First I look. ", Call("Bash", {"command": "echo seen > seen.txt"})], "Then I am done."],
    "slow": Drip("\nword", times=2_000, every=0.05),
    "ask": [Call("AskUserQuestion", {"questions": [QUESTION]}), "Answered: {{tool_result}}"],
    "wrong": Fail(400, message="no such thing"),
}  # fmt: skip


@pytest.fixture(autouse=True)
async def server(user: User) -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPTS) as server:
        user.env |= claude_env(server, user.home) | {"PATH": user.env["PATH"]}
        yield server
        assert list(server.other) == []


async def test_the_first_agent_that_can_be_used_answers(user: User, server: ModelServer) -> None:
    done = await user.atomic("-p", "@@hello@@")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Hello there.\n", "")


async def test_piped_text_follows_the_prompt(user: User, server: ModelServer) -> None:
    done = await user.atomic("-p", "--agent=claude", "@@hello@@", "read", "this:", input="one\ntwö\n")
    assert done.stdout == "Hello there.\n"
    (call,) = [call for call in server.calls if call.script == "hello"]
    assert call.user_text == "@@hello@@ read this:\n\none\ntwö"


async def test_stream_json_is_one_event_a_line_and_the_end_is_last(user: User, server: ModelServer) -> None:
    done = await user.atomic("-p", "@@tool@@", "-a", "claude", "-m", "haiku", "--output", "stream-json")
    *events, last = objects(done)
    assert (done.exit_code, done.stderr) == (0, "")
    kinds = [event["type"] for event in events]
    assert kinds.index("text_delta") < kinds.index("tool_started") < kinds.index("tool_ended")
    assert "turn_ended" not in kinds
    assert (last["type"], last["reason"], last["text"], last["error"]) == (
        "turn_ended",
        "done",
        "Then I am done.",
        None,
    )
    assert set(last) >= {"usage", "session"}
    assert last["session"]
    assert (user.project / "seen.txt").read_text() == "seen\n"
    assert "haiku" in next(call.model for call in server.calls if call.script == "tool")


async def test_a_failed_turn_explains_the_reason(user: User, server: ModelServer) -> None:
    done = await user.atomic("-p", "@@wrong@@", "-a", "claude")
    assert (done.exit_code, complaint(done)) == (1, "claude: API Error: 400 no such thing")


async def test_a_recording_is_played_without_the_agent(user: User, server: ModelServer) -> None:
    first = await user.atomic("-p", "@@tool@@", "-a", "claude", "--record", str(user.home / "tool.jsonl"))
    (user.project / "seen.txt").unlink()
    user.lacks("claude_agent_sdk")
    again = await user.atomic("-p", "@@tool@@", "-a", f"replay:{user.home}/tool.jsonl")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "First I look. \n\nThen I am done.\n", "")
    assert first.stdout == again.stdout
    assert (user.project / "seen.txt").read_text() == "seen\n"


async def test_a_dead_network_is_one_line(user: User, server: ModelServer) -> None:
    user.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"  # nothing listens there
    done = await user.atomic("-p", "hello", "-a", "claude")
    assert done.exit_code == 1
    assert "Connection refused" in complaint(done)


async def test_a_missing_key_is_one_line_with_the_remedy(user: User, server: ModelServer) -> None:
    del user.env["ANTHROPIC_API_KEY"]
    done = await user.atomic("-p", "hello", "-a", "claude")
    assert done.exit_code == 1
    remedy = r"run `\S*claude` once and log in, or set ANTHROPIC_API_KEY"
    assert len(re.findall(remedy, complaint(done))) == 1
    assert re.search(rf" \({remedy}\)$", complaint(done))
    assert re.fullmatch(
        rf"atomic: No agent can be used here: claude: {remedy}"
        r" \(atomic doctor says what is missing for each; atomic demo shows a run without one\)\n",
        (await user.atomic("-p", "hello")).stderr,
    )


async def test_a_question_without_a_terminal_ends_the_turn(user: User, server: ModelServer) -> None:
    done = await user.atomic("-p", "@@ask@@", "-a", "claude", "--output", "json")
    (last,) = objects(done)
    assert (done.exit_code, last["reason"]) == (5, "interrupted")
    message = (
        'the agent asks "Which colour?" and there is no one to answer (say it in the prompt, or run it in a terminal)'
    )
    assert last["error"] == told(done) == message


async def test_a_question_is_asked_at_the_terminal(user: User, server: ModelServer) -> None:
    command = (ATOMIC, "-p", "@@ask@@", "-a", "claude")
    async with in_terminal(command, env=user.env, cwd=user.project) as terminal:
        await terminal.shows("? [Colour] Which colour?\n  1. Blue - calm\n  2. Red - hot\n")
        await terminal.shows("of your own> ")
        terminal.type("3\r")
        await terminal.shows("No answer 3: they are numbered 1 to 2.\n")
        terminal.type("2\r")
        await terminal.shows("Answered: ")
        assert await terminal.exit_code() == 0
    (call,) = [call for call in server.calls if call.script == "ask" and call.turn == 1]
    assert '"Which colour?"="Red"' in call.tool_result


async def test_ctrl_c_in_a_terminal_stops_the_turn(user: User, server: ModelServer) -> None:
    async with in_terminal((ATOMIC, "-p", "@@slow@@"), env=user.env, cwd=user.project) as terminal:
        await terminal.shows("word3")
        terminal.type("\x03")
        assert await terminal.exit_code() == 130
        assert terminal.screen.endswith("\natomic: interrupted\n")
    assert processes(user.home) == {}


async def test_ctrl_c_twice_leaves_at_once(user: User, server: ModelServer) -> None:
    async with speaking(user) as program:
        (agent,) = [pid for pid, command in processes(user.home).items() if "_bundled/claude" in command]
        os.kill(agent, signal.SIGSTOP)  # it cannot handle a signal
        os.kill(program.pid, signal.SIGINT)
        await asyncio.sleep(0.1)  # two keypresses, not one that came twice
        os.kill(program.pid, signal.SIGINT)
        async with asyncio.timeout(30):
            assert await program.wait() == 130
    assert program.stderr_tail == ""  # the orderly way ends with a word
    await eventually(lambda: not processes(user.home))  # its guard ends the agent


async def test_a_signal_before_the_turn_is_handled_too(user: User, server: ModelServer) -> None:
    stuck = user.has("claude", "import time; print('2.1.325', flush=True); time.sleep(60)")
    words = ("-p", "hello", "--output", "json")
    async with running(ATOMIC, *words, cwd=user.project, env=user.env, stdin=False) as program:
        await eventually(lambda: any(str(stuck) in command for command in processes(user.home).values()))
        os.kill(program.pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            assert b'"reason":"interrupted","text":""' in await program.stdout.read()
            assert await program.wait() == 143


@asynccontextmanager
async def speaking(user: User, *flags: str) -> AsyncGenerator[Program]:
    """Start the command and wait until it is in the middle of a long answer."""
    words = ("-p", "@@slow@@", "-a", "claude", *flags)
    async with running(ATOMIC, *words, cwd=user.project, env=user.env, stdin=False) as program:
        heard = b""
        async with asyncio.timeout(60):
            while b"word3" not in heard:
                heard += await program.stdout.read(1024)
        yield program
