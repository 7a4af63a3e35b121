"""How long the engine waits for an agent to start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atomic.chat.agents import SessionTask
from atomic.providers import SessionOptions
from atomic.providers.programs import NotStartedError
from atomic.providers.replay import ReplayProvider


async def block_forever() -> SessionOptions:
    await asyncio.Event().wait()
    return SessionOptions()


async def test_a_user_can_set_how_long_an_agent_may_take_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATOMIC_START_SECONDS", "0.2")
    session_task = SessionTask(ReplayProvider(tmp_path / "recording.jsonl"), block_forever, None)
    with pytest.raises(NotStartedError, match=r"has not started within 0\.2 s"):
        await session_task.session()
    await session_task.close()
