"""Test Atomic against an agent built with the protocol's own SDK."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from atomic.config import AcpSettings, Settings
from atomic.providers import (
    AgentEvent,
    AgentSession,
    EndReason,
    McpServer,
    ModelInfo,
    Question,
    SessionOptions,
    TextDelta,
    Usage,
    require_provider,
)
from tests.providers.turns import LIMIT, end_of, text_of, turn

AGENT = Path(__file__).with_name("sdk_agent.py")
SETTINGS = Settings(acp={"sdk": AcpSettings([sys.executable, str(AGENT)])})


def open_session(folder: Path, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
    return require_provider("acp:sdk", SETTINGS).open(SessionOptions(cwd=folder, **options))


async def answer(session: AgentSession, prompt: str) -> str:
    end = end_of(await turn(session, prompt))
    assert end.usage == Usage(2, 1), end.error
    return end.text


async def test_prompts_permissions_and_forms_work(tmp_path: Path) -> None:
    async def ask(questions: Sequence[Question]) -> list[list[str]]:
        assert [option.label for option in questions[0].options] == ["Red", "Blue"]
        return [["Blue"]]

    async with open_session(tmp_path, ask=ask) as session:
        assert await answer(session, "Hellö, 世界.") == "Hellö, 世界."
        assert await answer(session, "permission") == "y"
        assert await answer(session, "form") == "{'colour': 'Blue'}"


async def test_mcp_servers_of_each_kind_are_accepted(tmp_path: Path) -> None:
    servers = [
        McpServer(name="a", command=["a-program", "--flag"], env={"KEY": "value"}),
        McpServer(name="b", url="http://127.0.0.1:1/", headers={"Key": "value"}),
        McpServer(name="c", url="http://127.0.0.1:1/", sse=True),
    ]
    async with open_session(tmp_path, mcp_servers=servers) as session:
        assert await answer(session, "servers") == "McpServerStdio a, HttpMcpServer b, SseMcpServer c"


async def test_sessions_are_resumed_and_forked(tmp_path: Path) -> None:
    async with open_session(tmp_path, resume="sdk-1", model="slow") as session:
        assert await answer(session, "servers") == "loaded sdk-1"
    async with open_session(tmp_path, resume="sdk-1", fork=True) as session:
        assert await answer(session, "servers") == "forked sdk-1"
        assert session.id == "sdk-2"


async def test_models_are_listed() -> None:
    assert await require_provider("acp:sdk", SETTINGS).models() == [
        ModelInfo("fast", "Fast"),
        ModelInfo("slow", "Slow"),
    ]


async def test_an_interrupt_cancels_the_prompt(tmp_path: Path) -> None:
    stopping: list[asyncio.Task[None]] = []
    async with open_session(tmp_path) as session, asyncio.timeout(LIMIT):
        events: list[AgentEvent] = []
        async for event in session.send("wait"):
            if isinstance(event, TextDelta) and not stopping:
                stopping.append(asyncio.create_task(session.interrupt()))
            events.append(event)
        await stopping[0]
    assert text_of(events) == "I wait. Stopped."
    assert end_of(events).reason is EndReason.INTERRUPTED
