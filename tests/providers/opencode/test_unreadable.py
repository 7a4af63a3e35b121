"""Test unreadable events of the server: they end the turn with a reason, but not the session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers import AgentSession, EndReason, ProgramFailedError, SessionOptions
from tests.providers.opencode.sandbox import provider, write_program
from tests.providers.turns import end, text_of, turn
from tests.support import fake_opencode


@pytest_asyncio.fixture
async def session(tmp_path: Path) -> AsyncGenerator[AgentSession]:
    async with provider(write_program(tmp_path, fake_opencode)).open(SessionOptions(cwd=tmp_path)) as session:
        yield session


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("big", "more than"),
        ("big without session", "more than"),
        ("garbage", "unreadable"),
        ("half a character", "unreadable"),
        ("deep", "nested too deep"),
    ],
)
async def test_an_unreadable_event_ends_the_turn_and_the_next_one_works(
    session: AgentSession, prompt: str, reason: str
) -> None:
    ended = await end(session, prompt)
    assert ended.reason is EndReason.ERROR
    assert ended.error is not None
    assert reason in ended.error
    again = await end(session, "continue")
    assert (again.reason, again.text) == (EndReason.DONE, "answer 2")


@pytest.mark.parametrize("prompt", ["unknown", "new shape", "comment"])
async def test_unknown_events_and_comments_are_ignored(session: AgentSession, prompt: str) -> None:
    ended = await end(session, prompt)
    assert (ended.reason, ended.text) == (EndReason.DONE, "answer 1")


async def test_half_an_event_and_a_closed_stream_lose_nothing(session: AgentSession) -> None:
    events = await turn(session, "close")
    assert text_of(events) == "received after all"
    assert (await end(session, "continue")).reason is EndReason.DONE


async def test_a_server_that_others_could_reach_is_not_used(tmp_path: Path) -> None:
    options = SessionOptions(cwd=tmp_path, env={"FAKE_HOST": "0.0.0.0"})
    with pytest.raises(ProgramFailedError, match="others could reach it"):
        async with provider(write_program(tmp_path, fake_opencode)).open(options):
            pass


async def test_the_error_contains_the_output_of_a_program_that_cannot_start(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(ProgramFailedError, match=r"exit code 7.*no space left"):
        async with provider(program).open(SessionOptions(cwd=tmp_path)):
            pass
