"""The agent's streams, as the SDK wants them: one message of JSON a line.

The SDK's own reader has no bound for a line, passes over what it cannot read, and tells updates in tasks of their own.
Here a line has a bound, what is no message ends the connection with a reason, and updates are heard in their order,
before the answer that comes behind them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import msgspec

from atomic.processes import Program
from atomic.providers.acp.errors import BrokenProtocolError
from atomic.providers.acp.loose import as_object

_UPDATE = "session/update"
_HARMLESS = frozenset({"elicitation/complete"})


class Wire:
    """A transport of the SDK. `fault` says why it stopped to listen, if it was not the program's end."""

    def __init__(
        self,
        program: Program,
        provider: str,
        *,
        update: Callable[[Mapping[str, Any]], None],
        unknown: Callable[[str], None],
    ) -> None:
        self.fault: BrokenProtocolError | None = None
        self.is_open = True
        self._program, self._provider = program, provider
        self._update, self._unknown = update, unknown

    async def send(self, message: dict[str, Any]) -> None:
        """Say something. Raises ConnectionError where nobody listens any more."""
        writer = self._program.stdin
        is_answer = "method" not in message
        try:
            if writer is None or writer.is_closing() or not self.is_open:
                raise ConnectionResetError("the agent has gone")
            writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, RuntimeError) as error:
            if not is_answer:  # nobody waits for what becomes of an answer
                raise ConnectionResetError(str(error)) from error

    async def receive(self) -> dict[str, Any] | None:
        """The next message that is for the SDK; None at the end. It never raises: the SDK would only log it."""
        while self.fault is None:
            line = await self._line()
            if not line:
                break
            message = self._read(line.strip())
            if message is not None and not self._is_taken(message):
                return message
        self.is_open = False
        return None

    async def close(self) -> None:
        self.is_open = False

    async def _line(self) -> bytes:
        try:
            return await self._program.stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            self._break(f"it wrote a line of more than {error.consumed} bytes")
        except (asyncio.IncompleteReadError, OSError):  # its end; half a message is none
            pass
        return b""

    def _read(self, line: bytes) -> dict[str, Any] | None:
        if not line.startswith((b"{", b"[{", b"[[")):
            self._hear_print(line)
            return None
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            self._break(f"a message cannot be read: {error}", line)
            return None
        if not _is_message(message):
            self._break("it sent JSON that is no message of the protocol", line)
            return None
        return message

    def _hear_print(self, line: bytes) -> None:
        """Some agents print a word of their own on the stream; but bytes that are no text are no print."""
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self._break("it wrote bytes that are no text", line)
            return
        if text:
            self._unknown(f"a printed line: {text[:80]}")

    def _is_taken(self, message: dict[str, Any]) -> bool:
        """Whether a message needs no answer, and so is not for the SDK, which would log each that it does not know."""
        method = message.get("method")
        if method is None:
            return False
        params = as_object(message.get("params"))
        if "id" in message:
            params.pop("_meta", None)  # the SDK would hand it on as arguments
            return False
        if method == _UPDATE:
            self._update(params)
        elif method not in _HARMLESS:
            self._unknown(method)
        return True

    def _break(self, why: str, line: bytes = b"") -> None:
        said = f": {line[:200]!r}" if line else ""
        self.fault = BrokenProtocolError(
            f"{self._provider} cannot be understood any more: {why}{said}", provider=self._provider
        )


def _is_message(data: Any) -> TypeGuard[dict[str, Any]]:
    """Whether it is a request, a notification or an answer of JSON-RPC, as far as the SDK takes for granted."""
    message = as_object(data)
    method, id, error = message.get("method"), message.get("id"), message.get("error")
    return (
        (isinstance(method, str) or (method is None and "id" in message))
        and (id is None or isinstance(id, (int, str)))
        and (error is None or isinstance(error, dict))
    )
