"""JSON-RPC on the pipes of a program of ours: no thread, nothing unbounded, no loss that nobody notices.

What cannot be read ends the connection with a reason, so that no turn waits for an end that was lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, TypeAlias

import msgspec

from atomic.processes import Program

MESSAGE_LIMIT = 64 * 1024 * 1024  # bytes of one message
_NO_SUCH_METHOD = -32601

Json: TypeAlias = dict[str, Any]


class UnreadableMessageError(Exception):
    """What came is no message of the protocol."""


class JsonRpcError(Exception):
    """The program answers that it cannot; `message` has its words."""

    def __init__(self, code: int, message: str) -> None:
        self.message = message
        super().__init__(f"JSON-RPC Error {code}: {message}")


class ProcessExitedError(Exception):
    """There is nobody any more who could answer."""


class _Problem(msgspec.Struct, frozen=True):
    code: int = -1
    message: str = "it does not say why"


class _Answer(msgspec.Struct, frozen=True):
    result: Any = None
    error: _Problem | None = None


class Wire:
    """Speaks with a program on its standard streams. `hear` gets what it tells, `closed` is called at the end."""

    def __init__(self, program: Program, hear: Callable[[str, Json], None], closed: Callable[[], None]) -> None:
        self.fault = ""  # why it ended, if not because the program did
        self._program, self._hear, self._closed = program, hear, closed
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[_Answer | None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._is_over = False

    def start(self) -> None:
        """Listen from now on."""
        self._reading = asyncio.create_task(self._read_all(), name="copilot-wire")

    async def heard_all(self, seconds: float) -> None:
        """Wait until the program has nothing more to say, but not for ever: somebody else may hold its pipe."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=seconds)

    async def stop(self) -> None:
        """Listen no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> Any:
        """The program's answer. Raises JsonRpcError, ProcessExitedError, TimeoutError."""
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            async with asyncio.timeout(timeout):
                answer = await answered
        finally:
            del self._waiting[number]
        if answer is None:
            raise self._gone()
        if answer.error is not None:
            raise JsonRpcError(answer.error.code, answer.error.message)
        return answer.result

    # what comes -----------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        try:
            while (message := await self._read()) is not None:
                self._take(message)
                await asyncio.sleep(0)  # what was heard is told before more is read: a flood fills the pipe, not us
        except UnreadableMessageError as error:
            self.fault = str(error)
        except (AttributeError, KeyError, TypeError, msgspec.ValidationError) as error:  # JSON, but not of the protocol
            self.fault = f"it sent a message that makes no sense ({error!r})"
        finally:
            self._is_over = True
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_result(None)
            self._closed()

    def _take(self, message: Json) -> None:
        method, number = message.get("method"), message.get("id")
        if method is None:
            answered = self._waiting.get(message["id"])
            if answered is not None and not answered.done():  # else nobody waits for it any more
                answered.set_result(msgspec.convert(message, _Answer))
        elif number is None:
            self._hear(method, message.get("params") or {})
        else:  # whatever it asks for was never offered to it
            self._post({"id": number, "error": {"code": _NO_SUCH_METHOD, "message": f"Method not found: {method}"}})

    async def _read(self) -> Json | None:
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

    # what goes ------------------------------------------------------------------------------------------------

    async def _send(self, message: Json) -> None:
        stdin = self._program.stdin
        if self._is_over or stdin is None or stdin.is_closing():
            raise self._gone()
        self._post(message)
        try:
            await stdin.drain()
        except ConnectionError as error:
            raise self._gone() from error

    def _post(self, message: Json) -> None:
        content = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        if self._program.stdin is not None:
            self._program.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))

    def _gone(self) -> ProcessExitedError:
        return ProcessExitedError(self.fault or "it has ended")


def _length(header: bytes) -> int:
    name, _, value = header.partition(b":")
    if name.lower() != b"content-length" or not value.strip().isdigit():
        raise UnreadableMessageError(f"it sent {header[:200]!r}, which is no message")
    length = int(value)
    if length > MESSAGE_LIMIT:
        raise UnreadableMessageError(f"it sent a message of {length} bytes (at most {MESSAGE_LIMIT} are read)")
    return length
