"""One run of the program: the requests to it and its requests to Atomic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.claude import control, messages
from atomic.providers.claude.control import Control, Json, ToolMessage
from atomic.providers.claude.launch import ATOMIC_SERVER, Launch
from atomic.providers.claude.questions import MayUse
from atomic.providers.claude.translate import Translator
from atomic.providers.claude.transport import ProgramTransport
from atomic.providers.errors import ProgramFailedError
from atomic.providers.programs import not_started
from atomic.providers.tool_server import INVALID_REQUEST, failed

T = TypeVar("T")


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    value: str
    display_name: str = ""


class _Initialized(msgspec.Struct, frozen=True):
    models: list[_Model] = []


class _Context(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: float
    max_tokens: float
    model: str = ""


class ClaudeProgram:
    """A running Claude Code."""

    def __init__(self, argv: Sequence[str], launch: Launch, translator: Translator, may_use: MayUse) -> None:
        self._launch = launch
        self._translator = translator
        self._may_use = may_use
        self._transport = ProgramTransport(
            argv, cwd=launch.cwd, env=launch.env, on_line=self._receive, on_lost=self._lost
        )
        self._control = Control(self._transport.send, self._answer)
        self._initialized: Json = {}  # its answer to `initialize`

    @property
    def usable(self) -> bool:
        return self._transport.usable

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start it, initialize it, and end it with the context.

        Raise ProgramFailedError.
        """
        try:
            await self._transport.connect()
            self._initialized = await self._initialize()
            yield
        finally:
            await self._control.close()
            await self._transport.close()

    async def _initialize(self) -> Json:
        seconds = self._launch.patience
        try:
            return await self._control.request(self._launch.greeting(), seconds=seconds)
        except ProgramFailedError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise not_started("Claude Code", "claude", seconds) from error
            raise

    async def kill(self, *, grace: float) -> None:
        """Kill it and all its children, even while it starts."""
        await self._transport.kill(grace=grace)

    # Requests to the program

    async def send(self, prompt: str, id: str) -> None:
        """Send a prompt; the program reports its state under the id. Raise
        ProgramFailedError.
        """
        message = {"role": "user", "content": prompt}
        await self._transport.send({"type": "user", "uuid": id, "parent_tool_use_id": None, "message": message})

    async def interrupt(self) -> None:
        """Stop the current work and drop queued prompts. Raise ProgramFailedError."""
        await self._control.notify({"subtype": "interrupt", "cancel_queued": True})

    async def set_model(self, id: str) -> None:
        """Use another model. Raise ProgramFailedError."""
        await self._control.request({"subtype": "set_model", "model": id})

    async def context(self) -> ContextUsage:
        """Return how full the context is. Raise ProgramFailedError."""
        context = _read(await self._control.request({"subtype": "get_context_usage"}), _Context)
        return ContextUsage(int(context.total_tokens), int(context.max_tokens), context.model)

    def models(self) -> list[ModelInfo]:
        """Return the available models. Raise ProgramFailedError."""
        return [ModelInfo(one.value, one.display_name) for one in _read(self._initialized, _Initialized).models]

    # Messages of the program

    def _receive(self, kind: str, line: bytes) -> None:
        if kind in control.KINDS:
            self._control.receive(kind, line)
        else:
            self._translator.receive(messages.read(kind, line))

    def _lost(self, failure: ProgramFailedError) -> None:
        self._control.fail(failure)
        self._translator.lost(failure)

    async def _answer(self, request: control.Request) -> Json:
        if not isinstance(request, ToolMessage):
            return await self._may_use(request)
        message = request.message
        if request.server_name != ATOMIC_SERVER:
            return {"mcp_response": failed(message.get("id"), INVALID_REQUEST, f"no server {request.server_name}")}
        return {"mcp_response": await self._launch.servers.tools.exchange(message)}


def _read(answer: Mapping[str, Any], type: type[T]) -> T:
    try:
        return msgspec.convert(answer, type)
    except msgspec.ValidationError as error:
        raise ProgramFailedError(
            f"Claude Code sent an answer of an unknown shape: {error}", provider="claude"
        ) from error
