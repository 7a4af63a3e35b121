"""One run of the program: what it can be asked, and what it asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.claude import control, wire
from atomic.providers.claude.control import Control, Json, ToolMessage
from atomic.providers.claude.launch import Launch
from atomic.providers.claude.questions import MayUse
from atomic.providers.claude.servers import OURS
from atomic.providers.claude.translate import Translator
from atomic.providers.claude.transport import ProgramTransport
from atomic.providers.errors import ProgramFailedError
from atomic.providers.starting import not_started
from atomic.providers.tool_protocol import INVALID_REQUEST, failed

T = TypeVar("T")


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    value: str
    display_name: str = ""


class _Greeted(msgspec.Struct, frozen=True):
    models: list[_Model] = []


class _Context(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: float
    max_tokens: float
    model: str = ""


class ClaudeProgram:
    """Claude Code, from its start to its end."""

    def __init__(self, argv: Sequence[str], launch: Launch, translator: Translator, may_use: MayUse) -> None:
        self._launch, self._translator, self._may_use = launch, translator, may_use
        self._transport = ProgramTransport(argv, cwd=launch.cwd, env=launch.env, hear=self._hear, lost=self._lost)
        self._control = Control(self._transport.say, self._answer)
        self._greeted: Json = {}  # what it said when it started

    @property
    def usable(self) -> bool:
        return self._transport.usable

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start it, greet it, and end it with the context. Raises ProgramFailedError."""
        try:
            await self._transport.connect()
            self._greeted = await self._greet()
            yield
        finally:
            await self._control.close()
            await self._transport.close()

    async def _greet(self) -> Json:
        seconds = self._launch.patience
        try:
            return await self._control.ask(self._launch.greeting(), seconds=seconds)
        except ProgramFailedError as error:
            if isinstance(error.__cause__, TimeoutError):
                raise not_started("Claude Code", "claude", seconds) from error
            raise

    async def kill(self, *, grace: float) -> None:
        """End it now, with all that it started, even while it starts."""
        await self._transport.kill(grace=grace)

    # what it can be asked -------------------------------------------------------------------------------------

    async def ask(self, prompt: str, id: str) -> None:
        """Send a prompt; what becomes of it is told under its id. Raises ProgramFailedError."""
        message = {"role": "user", "content": prompt}
        await self._transport.say({"type": "user", "uuid": id, "parent_tool_use_id": None, "message": message})

    async def interrupt(self) -> None:
        """Stop what it does; a prompt in the queue that has not yet begun, too. Raises ProgramFailedError."""
        await self._control.tell({"subtype": "interrupt", "cancel_queued": True})

    async def set_model(self, id: str) -> None:
        """Use another model. Raises ProgramFailedError."""
        await self._control.ask({"subtype": "set_model", "model": id})

    async def context(self) -> ContextUsage:
        """Return how full the context is. Raises ProgramFailedError."""
        told = _read(await self._control.ask({"subtype": "get_context_usage"}), _Context)
        return ContextUsage(int(told.total_tokens), int(told.max_tokens), told.model)

    def models(self) -> list[ModelInfo]:
        """The models that may be chosen. Raises ProgramFailedError."""
        return [ModelInfo(one.value, one.display_name) for one in _read(self._greeted, _Greeted).models]

    # what it says and asks ------------------------------------------------------------------------------------

    def _hear(self, kind: str, line: bytes) -> None:
        if kind in control.KINDS:
            self._control.hear(kind, line)
        else:
            self._translator.hear(wire.read(kind, line))

    def _lost(self, failure: ProgramFailedError) -> None:
        self._control.fail(failure)
        self._translator.lost(failure)

    async def _answer(self, request: control.Request) -> Json:
        if not isinstance(request, ToolMessage):
            return await self._may_use(request)
        message = request.message
        if request.server_name != OURS:
            return {"mcp_response": failed(message.get("id"), INVALID_REQUEST, f"no server {request.server_name}")}
        return {"mcp_response": await self._launch.servers.ours.exchange(message)}


def _read(told: Mapping[str, Any], type: type[T]) -> T:
    try:
        return msgspec.convert(told, type)
    except msgspec.ValidationError as error:
        raise ProgramFailedError(f"Claude Code answers in another shape: {error}", provider="claude") from error
