"""Test invalid output of the program: it ends at most the turn, and the next turn works."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers import AgentSession, EndReason, ProgramFailedError, SessionOptions, TextDelta, require_provider
from tests.providers.copilot.sandbox import settings
from tests.providers.turns import LIMIT, end, end_of, turn
from tests.support.fake_copilot import write_fake_program

NO_LOGIN_NEEDED = {"GH_TOKEN": "none"}


@pytest_asyncio.fixture
async def session(tmp_path: Path) -> AsyncGenerator[AgentSession]:
    provider = require_provider("copilot", settings(write_fake_program(tmp_path)))
    async with provider.open(SessionOptions(cwd=tmp_path, env=NO_LOGIN_NEEDED)) as session:
        yield session


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("garbage", "which is not a message"),
        ("no-json", "not JSON"),
        ("no-object", "invalid message"),
        ("deep", "nested too deep"),
        ("long", "99999999999 bytes"),
        ("endless", "too long"),
        ("half", "middle of a message"),
        ("unreadable-end", "unreadable message"),
    ],
)
async def test_unreadable_output_ends_the_turn_and_the_next_one_works(
    session: AgentSession, prompt: str, error: str
) -> None:
    ended = await end(session, prompt)
    assert ended.reason is EndReason.ERROR
    assert error in str(ended.error)
    assert (await end(session, "and now?")).text == "and now?"


async def test_unknown_events_are_ignored_and_logged_once(
    session: AgentSession, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="atomic"):
        assert (await end(session, "new")).reason is EndReason.DONE
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "session.hologram" in line] == [
        'copilot: ignored a message of the unknown kind "session.hologram"'
    ]
    assert len([line for line in logged if "assistant.usage" in line]) == 1


async def test_the_end_of_an_earlier_turn_does_not_end_the_next(session: AgentSession) -> None:
    assert (await end(session, "stale")).text == "stale"


async def test_a_session_that_does_not_stop_is_ended_without_affecting_others(tmp_path: Path) -> None:
    provider = require_provider("copilot", settings(write_fake_program(tmp_path)))
    options = SessionOptions(cwd=tmp_path, env=NO_LOGIN_NEEDED)
    async with provider.open(options) as deaf, provider.open(options) as other:
        waiting = asyncio.create_task(turn(other, "deaf"))
        events = deaf.send("deaf")
        assert isinstance(await anext(events), TextDelta)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await deaf.interrupt()
        assert loop.time() - began < 2.5
        assert end_of([event async for event in events]).reason is EndReason.INTERRUPTED
        assert (await end(deaf, "hello")).text == "hello"
        assert not waiting.done()
        async with asyncio.timeout(LIMIT):
            await other.interrupt()
            assert end_of(await waiting).reason is EndReason.INTERRUPTED


async def test_the_error_contains_the_output_of_a_program_that_does_not_start(tmp_path: Path) -> None:
    provider = require_provider("copilot", settings(write_fake_program(tmp_path, "broken")))
    with pytest.raises(ProgramFailedError, match="the engine is missing"):
        async with provider.open(SessionOptions(cwd=tmp_path, env=NO_LOGIN_NEEDED)):
            pass


async def test_a_request_for_an_unknown_method_is_refused(session: AgentSession) -> None:
    assert (await end(session, "asks")).text == "Method not found: hooks.invoke"


async def test_a_program_with_another_protocol_version_is_refused(tmp_path: Path) -> None:
    provider = require_provider("copilot", settings(write_fake_program(tmp_path, "newer")))
    with pytest.raises(ProgramFailedError, match="Copilot uses version 4 of its protocol, Atomic supports version 3"):
        async with provider.open(SessionOptions(cwd=tmp_path, env=NO_LOGIN_NEEDED)):
            pass
