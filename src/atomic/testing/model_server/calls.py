"""What a server was asked and what became of it: the part that a test looks at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from atomic.testing.model_server.conversation import Protocol
from atomic.testing.model_server.errors import NoSuchCallError

_log = logging.getLogger(__name__)


class CallState(StrEnum):
    """How far a call has come."""

    OPEN = "open"  # it is being answered, or was when the server stopped
    ANSWERED = "answered"  # all that was scripted has been sent: an error and a cut answer too
    STALLED = "stalled"  # the client waits for what will never come
    CLIENT_CLOSED = "client closed"  # the client hung up before the end


class ModelCall(msgspec.Struct, kw_only=True, eq=False):
    """One request for an answer. Only its state changes."""

    protocol: Protocol
    path: str
    model: str
    stream: bool
    tools: tuple[str, ...]  # the names that the client offers
    system: str
    user_text: str  # the newest one, without <system-reminder>
    tool_result: str  # what the tools said since the model's last step
    script: str | None  # None: a side text or the default
    turn: int
    headers: Mapping[str, str]  # with lower-case names; keys and tokens are not hidden
    body: Mapping[str, Any]  # as it came, for all that has no field here
    state: CallState = CallState.OPEN

    def __str__(self) -> str:
        place = "-" if self.script is None else f"{self.script}[{self.turn}]"
        return f"{place} {self.state} ({self.protocol}, {self.model})"


class OtherRequest(msgspec.Struct, frozen=True):
    """A request that has nothing to do with a model: telemetry, an update check, a wrong address."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Ledger:
    """All requests of a server in the order of their arrival."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.other: list[OtherRequest] = []
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, call: ModelCall) -> None:
        """Note a call that has just arrived."""
        self.calls.append(call)
        self._tell(call)

    def mark(self, call: ModelCall, state: CallState) -> None:
        """Note what became of a call."""
        call.state = state
        self._tell(call)

    async def wait_for(self, condition: Callable[[ModelCall], bool], *, timeout: float) -> ModelCall:
        """Wait until there is a call for which the condition holds."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    for call in self.calls:
                        if condition(call):
                            return call
                    await self._news()
        except TimeoutError:
            raise NoSuchCallError(timeout, [str(call) for call in self.calls]) from None

    async def _news(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _tell(self, call: ModelCall) -> None:
        _log.info("%s", call)
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
