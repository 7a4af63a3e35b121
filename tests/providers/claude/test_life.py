"""Test sessions that outlive their program: they are resumed and forked, and leave no processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import (
    EndReason,
    ProgramFailedError,
    ProgramMissingError,
    ProviderError,
    SubagentEnded,
    ToolEnded,
    ToolStarted,
)
from atomic.testing.model_server import Drip, Pause, Say
from tests.providers.claude.sandbox import agent, bash, sandbox, sleep_command
from tests.providers.processes import appears, children, disappears, find
from tests.providers.turns import LIMIT, all_of, end, end_of, turn

pytestmark = pytest.mark.ci


async def test_a_session_is_resumed_and_forked_in_a_new_process(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here:
        async with here.open() as session:
            id = session.id
            assert (await end(session, "@@say@@ my number is 4711")).text == "hello"
            assert session.id == id
        async with here.open(resume=id) as session:
            assert session.id == id
            await end(session, "@@say@@ which one?")
            assert "4711" in str(here.server.calls[-1].body["messages"])
        async with here.open(resume=id, fork=True) as copy:
            assert copy.id != id
            await end(copy, "@@say@@ in the copy")
            assert "4711" in str(here.server.calls[-1].body["messages"])
            copied = copy.id
        async with here.open(resume=copied) as session:
            await end(session, "@@say@@ again")
            assert "in the copy" in str(here.server.calls[-1].body["messages"])
        async with here.open(resume=id) as session:
            await end(session, "@@say@@ again")
            assert "in the copy" not in str(here.server.calls[-1].body["messages"])


async def test_resuming_a_missing_session_fails_at_once(tmp_path: Path) -> None:
    missing = "6f1aa10f-4ef1-4ea1-8307-05d7bbfcd5a3"
    async with sandbox(tmp_path, {}) as here:
        with pytest.raises(ProgramFailedError, match=f"No conversation found with session ID: {missing}"):
            async with here.open(resume=missing):
                pass


async def test_a_program_killed_between_turns_is_started_again(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here, here.open() as session:
        await end(session, "@@say@@ my number is 4711")
        [program] = find(session.id)
        os.kill(program, signal.SIGKILL)
        await disappears(session.id)
        assert (await end(session, "@@say@@ which one?")).text == "hello"
        assert "4711" in str(here.server.calls[-1].body["messages"])


async def test_a_program_killed_in_a_turn_is_reported_and_the_next_turn_works(tmp_path: Path) -> None:
    scripts = {
        "first": [[Pause(LIMIT), Say("never")]],
        "text": [[Drip("w", 1000, 0.02)]],
        "tool": [[agent("child")], "waiting", "never"],
        "child": [[bash(sleep_command(105))], "never"],
        "say": "hello",
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        for script in ("first", "text", "tool"):
            running = asyncio.create_task(turn(session, f"@@{script}@@ go"))
            await here.server.wait_for(lambda call, script=script: call.script == script)
            if script == "tool":
                await appears("time.sleep(105)")
            [program] = find(session.id)
            os.kill(program, signal.SIGKILL)
            events = await running
            assert end_of(events).reason is EndReason.ERROR
            assert end_of(events).error == "Claude Code was ended by SIGKILL"
        assert find("time.sleep(105)") == []  # though its shell has a process session of its own
        assert [one.id for one in all_of(ToolEnded, events)] == [one.id for one in all_of(ToolStarted, events)]
        assert [one.error for one in all_of(SubagentEnded, events)] == ["interrupted"]
        assert (await end(session, "@@say@@ go")).text == "hello"


async def test_arguments_of_the_user_are_passed_on_and_errors_about_them_reported(tmp_path: Path) -> None:
    def settings(*args: str) -> Settings:
        return Settings(providers={"claude": ProviderSettings(args=args, env={"ANTHROPIC_CUSTOM_HEADERS": "x-us: y"})})

    async with sandbox(tmp_path, {"say": "hello"}) as here:
        async with here.open(using=settings("--append-system-prompt", "Be KIND.")) as session:
            await end(session, "@@say@@ go")
            assert "Be KIND." in here.server.calls[-1].system
            assert here.server.calls[-1].headers["x-us"] == "y"
        async with here.open(using=settings("--no-such-flag")) as session:
            ended = await end(session, "@@say@@ go")
            assert ended.reason is EndReason.ERROR
            assert "ended with exit code 1: error: unknown option '--no-such-flag'" in (ended.error or "")


async def test_a_missing_program_or_folder_is_an_error_when_a_session_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sandbox(tmp_path, {}) as here:
        with pytest.raises(ProviderError, match="Folder not found"):
            async with here.open(cwd=tmp_path / "nowhere"):
                pass
        monkeypatch.setenv("ATOMIC_CLAUDE_PATH", str(tmp_path / "no-claude"))
        with pytest.raises(ProgramMissingError, match="no-claude"):
            async with here.open():
                pass


async def test_eight_parallel_sessions_leave_no_processes_files_or_threads(tmp_path: Path) -> None:
    scripts = {f"s{n}": [[bash(f"echo from-{n}")], f"{n}: {{{{tool_result}}}}"] for n in range(8)}

    async def one(number: int) -> str:
        async with here.open() as session:
            events = await turn(session, f"@@s{number}@@ go")
            assert len(all_of(ToolStarted, events)) == 1
            return end_of(events).text

    async with sandbox(tmp_path, scripts) as here:
        await one(0)  # loads everything that stays loaded
        before = (children(), open_files(), threading.active_count(), len(asyncio.all_tasks()))
        assert await asyncio.gather(*map(one, range(8))) == [f"{n}: from-{n}" for n in range(8)]
        await asyncio.sleep(0)
        after = (children(), open_files(), threading.active_count(), len(asyncio.all_tasks()))
    assert after == before
    assert here.server.other == []


def open_files() -> list[str]:
    """Return the open files of this process, without connections of the model server."""
    links = [f"/proc/self/fd/{entry}" for entry in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.lexists(link)]
    return sorted(name.split(":")[0] for name in names if not name.startswith("socket:"))
