"""Test agents that break the protocol: the turn ends with a reason, and the next one works."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from atomic.config import AcpSettings, Settings
from atomic.providers import AgentSession, EndReason, SessionOptions, TextDelta, TurnEnded, require_provider
from atomic.testing.conformance.case import descendants, gone
from tests.providers.acp.sandbox import open_puppet, run_steps
from tests.providers.turns import LIMIT, end_of, text_of
from tests.support.fake_acp import PROGRAM
from tests.support.timing import judge

BROKEN: dict[str, dict[str, Any]] = {
    "half a message": {"print": '{"jsonrpc": "2.0", "method": "session/upd'},
    "invalid UTF-8": {"bytes": "ff00fe"},
    "JSON that is too deep": {"deep": 200_000},
    "a list": {"print": '[{"jsonrpc": "2.0"}]'},
    "no message": {"print": '{"hello": "world"}'},
    "an id of the wrong type": {"tell": {"id": [1], "result": {}}},
    "an error of the wrong type": {"tell": {"id": 1, "error": "bad"}},
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_invalid_message_ends_the_turn_with_the_reason(tmp_path: Path, name: str) -> None:
    async with open_puppet(tmp_path) as session:
        end = end_of(await run_steps(session, BROKEN[name], {"deaf": True}))
        assert end.reason is EndReason.ERROR
        assert "sent something unreadable" in (end.error or "")
        assert end_of(await run_steps(session, {"say": "Here again."})).text == "Here again."


async def test_a_line_of_more_than_64_mb_ends_the_turn_with_the_reason(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        end = end_of(await run_steps(session, {"long": 65 * 1024 * 1024}, {"deaf": True}))
        assert end.reason is EndReason.ERROR
        assert "a line of more than" in (end.error or "")
        assert end_of(await run_steps(session, {"say": "Here again."})).text == "Here again."


async def test_a_message_of_16_mb_is_read(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        events = await run_steps(session, {"say": "x" * 16_000_000})
    assert len(end_of(events).text) == 16_000_000


async def test_unknown_messages_are_ignored_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    strange = {"update": {"sessionUpdate": "horoscope", "sign": "leo"}}
    malformed = {"update": {"sessionUpdate": "agent_message_chunk", "content": 7}}
    with caplog.at_level(logging.WARNING):
        async with open_puppet(tmp_path) as session:
            events = await run_steps(
                session,
                strange,
                strange,
                malformed,
                {"print": "a line of its own"},
                {"tell": {"method": "weather/changed", "params": {}}},
                {"tell": {"method": "session/update", "params": {"sessionId": "another", "update": {}}}},
                {"tell": {"id": 4711, "result": {}}},
                {"say": "Fine."},
            )
    assert end_of(events).reason is EndReason.DONE
    assert text_of(events) == "Fine."
    logged = [record.getMessage() for record in caplog.records]
    assert len([line for line in logged if '"horoscope"' in line]) == 1
    for word in ("agent_message_chunk of an unknown shape", "a line of its own", "weather/changed", "another session"):
        assert [line for line in logged if word in line], logged


async def test_the_exit_of_the_program_is_reported_and_it_starts_again(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        id = session.id
        end = end_of(await run_steps(session, {"say": "Now. "}, {"exit": 3}))
        assert end.reason is EndReason.ERROR
        assert "ended with exit code 3" in (end.error or "")
        assert "the puppet breaks" in (end.error or "")
        assert end_of(await run_steps(session, {"say": "Here again."})).text == "Here again."
        assert session.id == id


async def test_the_exit_of_the_program_is_noticed_while_a_child_holds_its_pipe(tmp_path: Path) -> None:
    line = ["sh", "-c", 'sleep 300 & exec "$0" "$1"', sys.executable, PROGRAM]
    provider = require_provider("acp:puppet", Settings(acp={"puppet": AcpSettings(line)}))
    async with provider.open(SessionOptions(cwd=tmp_path)) as session:
        end = end_of(await run_steps(session, {"exit": 3}))
        assert end.reason is EndReason.ERROR
        assert "ended with exit code 3" in (end.error or "")


async def test_a_restarted_program_that_cannot_resume_is_an_error(tmp_path: Path) -> None:
    async with open_puppet(tmp_path, "--forgetful") as session:
        assert end_of(await run_steps(session, {"say": "Something to resume."})).reason is EndReason.DONE
        assert end_of(await run_steps(session, {"exit": 3})).reason is EndReason.ERROR
        end = end_of(await run_steps(session, {"say": "Here again."}))
        assert end.reason is EndReason.ERROR
        assert "cannot resume a session" in (end.error or "")


async def test_a_responsive_agent_survives_an_interrupt(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        [before] = puppets()
        assert (await interrupt(session, '[{"say": "a"}, {"wait": true}]')).reason is EndReason.INTERRUPTED
        assert puppets() == [before]


@pytest.mark.timed
async def test_an_agent_that_ignores_an_interrupt_is_killed_within_two_seconds(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:
        before = puppets()
        began = asyncio.get_running_loop().time()
        assert (await interrupt(session, '[{"say": "a"}, {"deaf": true}]')).reason is EndReason.INTERRUPTED
        judge(asyncio.get_running_loop().time() - began, 3.5)  # includes the time to the first word
        assert end_of(await run_steps(session, {"say": "Here again."})).text == "Here again."
        assert not set(puppets()) & set(before)


ANSWERS_AS_IT_DIES = """
import signal, sys
sys.path.insert(0, sys.argv[1])
import fake_acp

def answer(*_):
    fake_acp.send({"id": 3, "result": {"stopReason": "cancelled"}})  # to the first prompt

signal.signal(signal.SIGTERM, answer)
fake_acp.main()
"""


async def test_a_program_that_answers_while_it_ends_gets_no_other_prompt(tmp_path: Path) -> None:
    line = [sys.executable, "-c", ANSWERS_AS_IT_DIES, str(Path(PROGRAM).parent)]
    provider = require_provider("acp:puppet", Settings(acp={"puppet": AcpSettings(line)}))
    stopping: list[asyncio.Task[None]] = []
    async with provider.open(SessionOptions(cwd=tmp_path)) as session, asyncio.timeout(LIMIT):
        async for event in session.send('[{"say": "a"}, {"deaf": true}]'):
            if isinstance(event, TextDelta):
                stopping.append(asyncio.create_task(session.interrupt()))
        assert end_of(await run_steps(session, {"pause": 0.3}, {"say": "Here again."})).text == "Here again."
        await stopping[0]


async def test_processes_in_other_sessions_end_with_the_session(tmp_path: Path) -> None:
    """Agents run shells in their own process sessions, outside the agent's group."""
    async with open_puppet(tmp_path) as session:
        pid = int(end_of(await run_steps(session, {"spawn": True})).text)
        assert not await gone([pid], within=0.1)
        await interrupt(session, '[{"say": "a"}, {"deaf": true}]')
        assert await gone([pid], within=LIMIT)


async def test_a_session_leaves_no_processes_files_threads_or_tasks(tmp_path: Path) -> None:
    async with open_puppet(tmp_path) as session:  # loads everything that stays loaded
        await run_steps(session, {"say": "Once."})
    before = open_resources()
    for _ in range(3):
        async with open_puppet(tmp_path) as session:
            await run_steps(session, {"say": "Hello."})
            await interrupt(session, '[{"say": "a"}, {"deaf": true}]')
            await run_steps(session, {"exit": 1})
    async with asyncio.timeout(LIMIT):
        while (after := open_resources()) != before:
            await asyncio.sleep(0.05)
    assert after == before


async def interrupt(session: AgentSession, prompt: str) -> TurnEnded:
    """Interrupt a turn at the first word and return its end."""
    stopping: list[asyncio.Task[None]] = []
    ends: list[TurnEnded] = []
    async with asyncio.timeout(LIMIT):
        async for event in session.send(prompt):
            if isinstance(event, TextDelta) and not stopping:
                stopping.append(asyncio.create_task(session.interrupt()))
            if isinstance(event, TurnEnded):
                ends.append(event)
        for task in stopping:
            await task
    return ends[0]


def puppets() -> list[int]:
    """Return the running puppets."""
    return [pid for pid in descendants(os.getpid()) if b"fake_acp.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def open_resources() -> dict[str, int]:
    return {
        "processes": len(descendants(os.getpid())),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
    }
