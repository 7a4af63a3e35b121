"""An agent of the screen that does not start is an error after the time that the user gives it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atomic.chat.agents import SessionTask
from atomic.providers import SessionOptions
from atomic.providers.programs import NotStartedError
from atomic.providers.replay import ReplayProvider


async def never() -> SessionOptions:
    await asyncio.Event().wait()
    return SessionOptions()


async def test_a_user_can_set_how_long_an_agent_may_take_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATOMIC_START_SECONDS", "0.2")
    keeper = SessionTask(ReplayProvider(tmp_path / "recording.jsonl"), never, None)
    with pytest.raises(NotStartedError, match=r"has not started within 0\.2 s"):
        await keeper.session()
    await keeper.close()
