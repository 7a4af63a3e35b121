"""The SDK's JSON-RPC on the pipes of a program of ours: no thread, nothing unbounded, no loss that nobody notices.

The SDK's own reader is a thread that believes any length it is told and reads headers byte by byte; its writer is
another thread. Here both are part of the event loop, and what cannot be read ends the connection with a reason, so
that no turn waits for an end that was lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from copilot._jsonrpc import JsonRpcClient, JsonRpcError, ProcessExitedError

from atomic.processes import Program

__all__ = ["JsonRpcError", "ProcessExitedError", "UnreadableMessageError", "Wire"]

MESSAGE_LIMIT = 64 * 1024 * 1024  # bytes of one message


class UnreadableMessageError(Exception):
    """What came is no message of the protocol."""


class Wire(JsonRpcClient):
    """Speaks with a program on its standard input and output."""

    def __init__(self, program: Program) -> None:
        super().__init__(None)
        self.fault = ""  # why it ended, if not because the program did
        self._program = program
        self._reading: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Listen from now on."""
        self._loop = loop or asyncio.get_running_loop()
        self._reading = self._loop.create_task(self._read_all(), name="copilot-wire")

    async def heard_all(self, seconds: float) -> None:
        """Wait until the program has nothing more to say, but not for ever: somebody else may hold its pipe."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=seconds)

    async def stop(self) -> None:
        """Listen no more."""
        self.on_close = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> Any:
        """Raises JsonRpcError, ProcessExitedError, TimeoutError."""
        return await self.request(method, dict(params), timeout)  # pyright: ignore[reportUnknownMemberType]  # a bare dict

    async def _read_all(self) -> None:
        try:
            while (message := await self._read()) is not None:
                self._handle_message(message)  # pyright: ignore[reportUnknownMemberType]  # a bare dict
                await asyncio.sleep(0)  # what was heard is told before more is read: a flood fills the pipe, not us
        except UnreadableMessageError as error:
            self.fault = str(error)
        except (AttributeError, KeyError, TypeError) as error:  # JSON, but not of the protocol
            self.fault = f"it sent a message that makes no sense ({error!r})"
        finally:
            self._fail_pending_requests()
            if self.on_close is not None:
                self.on_close()

    async def _read(self) -> dict[str, Any] | None:
        """The next message; None at the end. Raises UnreadableMessageError."""
        stdout = self._program.stdout
        try:
            header = await stdout.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise UnreadableMessageError("it sent a line that has no end") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise UnreadableMessageError(f"it ended with {error.partial[-200:]!r}") from None
            return None
        try:
            return json.loads(await stdout.readexactly(_length(header)))
        except asyncio.IncompleteReadError:
            raise UnreadableMessageError("it ended in the middle of a message") from None
        except RecursionError:
            raise UnreadableMessageError("it sent a message that is nested too deep") from None
        except ValueError as error:
            raise UnreadableMessageError(f"it sent a message that is no JSON ({error})") from None

    async def _send_message(self, message: dict[str, Any]) -> None:
        stdin = self._program.stdin
        if self._transport_closed or stdin is None or stdin.is_closing():
            raise ProcessExitedError(self._get_process_exit_error())
        content = json.dumps(message, separators=(",", ":")).encode()
        stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise ProcessExitedError(self._get_process_exit_error()) from error

    def _get_process_exit_error(self) -> str:
        return self.fault or "it has ended"


def _length(header: bytes) -> int:
    name, _, value = header.partition(b":")
    if name.lower() != b"content-length" or not value.strip().isdigit():
        raise UnreadableMessageError(f"it sent {header[:200]!r}, which is no message")
    length = int(value)
    if length > MESSAGE_LIMIT:
        raise UnreadableMessageError(f"it sent a message of {length} bytes (at most {MESSAGE_LIMIT} are read)")
    return length
