"""A server that says what cannot be read ends the turn it speaks of, with a reason, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers import AgentSession, EndReason, ProgramFailedError, SessionOptions
from tests.providers.opencode.place import imitation, provider
from tests.providers.turns import end, text_of, turn


@pytest_asyncio.fixture
async def session(tmp_path: Path) -> AsyncGenerator[AgentSession]:
    async with provider(imitation(tmp_path, "fake_opencode.py")).open(SessionOptions(cwd=tmp_path)) as session:
        yield session


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("big", "more than"),
        ("big for nobody", "more than"),
        ("garbage", "unreadable"),
        ("half a character", "unreadable"),
        ("deep", "nested too deep"),
    ],
)
async def test_the_turn_ends_with_a_reason_and_the_session_goes_on(
    session: AgentSession, prompt: str, reason: str
) -> None:
    ended = await end(session, prompt)
    assert ended.reason is EndReason.ERROR
    assert ended.error is not None
    assert reason in ended.error
    again = await end(session, "go on")
    assert (again.reason, again.text) == (EndReason.DONE, "answer 2")


@pytest.mark.parametrize("prompt", ["unknown", "new shape", "comment"])
async def test_what_is_only_not_understood_does_not_matter(session: AgentSession, prompt: str) -> None:
    ended = await end(session, prompt)
    assert (ended.reason, ended.text) == (EndReason.DONE, "answer 1")


async def test_half_an_event_and_a_closed_stream_lose_nothing(session: AgentSession) -> None:
    events = await turn(session, "close")
    assert text_of(events) == "heard all the same"
    assert (await end(session, "go on")).reason is EndReason.DONE


async def test_a_server_that_others_could_reach_is_not_used(tmp_path: Path) -> None:
    options = SessionOptions(cwd=tmp_path, env={"FAKE_HOST": "0.0.0.0"})
    with pytest.raises(ProgramFailedError, match="others could reach it"):
        async with provider(imitation(tmp_path, "fake_opencode.py")).open(options):
            pass


async def test_a_program_that_cannot_start_says_why(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 7\n")
    program.chmod(0o755)
    with pytest.raises(ProgramFailedError, match=r"exit code 7.*no space left"):
        async with provider(program).open(SessionOptions(cwd=tmp_path)):
            pass
