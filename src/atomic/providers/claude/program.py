"""One run of the program: the SDK's client, over our transport."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

from atomic.providers.base import ModelInfo
from atomic.providers.claude.transport import ProgramTransport
from atomic.providers.errors import ProgramFailedError, ProviderError

T = TypeVar("T")


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    value: str
    display_name: str = ""


class _Info(msgspec.Struct, frozen=True):
    models: list[_Model] = []


class ClaudeProgram:
    """Claude Code as it runs."""

    def __init__(self, client: ClaudeSDKClient, transport: ProgramTransport) -> None:
        self._client, self._transport = client, transport

    @property
    def usable(self) -> bool:
        return self._transport.usable

    async def ask(self, prompt: str, id: str) -> None:
        """Send a prompt; what becomes of it is told under its id. Raises ProgramFailedError."""
        message = {"role": "user", "content": prompt}
        await self._say({"type": "user", "uuid": id, "parent_tool_use_id": None, "message": message})

    async def interrupt(self) -> None:
        """Stop what it does. Raises ProgramFailedError.

        Not the client's own: that one leaves a prompt in the queue which has not yet begun, and so starts it.
        """
        request = {"subtype": "interrupt", "cancel_queued": True}
        await self._say({"type": "control_request", "request_id": f"stop-{uuid.uuid4()}", "request": request})

    async def set_model(self, id: str) -> None:
        await _answered(self._client.set_model(id))

    async def context(self) -> tuple[int, int]:
        """Tokens used, and how many there may be."""
        told = await _answered(self._client.get_context_usage())
        return int(told["totalTokens"]), int(told["maxTokens"])

    async def models(self) -> list[ModelInfo]:
        """What it said when it started."""
        told = msgspec.convert(await _answered(self._client.get_server_info()), _Info)
        return [ModelInfo(one.value, one.display_name) for one in told.models]

    async def _say(self, message: dict[str, Any]) -> None:
        await self._transport.write(json.dumps(message) + "\n")


async def _answered(request: Awaitable[T]) -> T:
    try:
        return await request
    except ProviderError:
        raise
    except Exception as error:  # the SDK raises just that: an Exception
        raise ProgramFailedError(f"Claude Code refuses: {error}", provider="claude") from error


@asynccontextmanager
async def connected(transport: ProgramTransport, spoken: ClaudeAgentOptions) -> AsyncGenerator[ClaudeProgram]:
    """The program, from its start to its end. Raises ProgramFailedError."""
    client = ClaudeSDKClient(spoken, transport)
    await _answered(client.connect())
    try:
        yield ClaudeProgram(client, transport)
    finally:
        await client.disconnect()
