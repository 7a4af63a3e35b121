"""JSON-RPC over the standard streams of a program.

How messages are framed in the stream depends on the protocol. An unreadable message
ends the connection with a reason, so no turn waits for a message that was lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from atomic.processes import Program

NO_SUCH_METHOD = -32601
MESSAGE_LIMIT = 64 * 1024 * 1024  # bytes of one message with a header
_WRONG_PARAMS = -32602
_INTERNAL_ERROR = -32603
_DRAIN_SECONDS = 1.0  # for output of a program that has ended; a child may keep its pipe open
_CANCEL_SECONDS = 2.0  # for answers that are cancelled
_log = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]


class UnreadableMessageError(Exception):
    """The program sent something that is not a message of the protocol."""


class JsonRpcError(Exception):
    """A request failed, on either side; `data` holds further details."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"JSON-RPC Error {code}: {message}")


class ProcessExitedError(Exception):
    """The program has ended and cannot answer."""


class Framing(Protocol):
    """How messages are framed in the stream."""

    def messages(self, stdout: asyncio.StreamReader, /) -> AsyncGenerator[Any]:
        """Yield each decoded message until the stream ends.

        Raise UnreadableMessageError.
        """
        ...

    def framed(self, content: bytes, /) -> bytes:
        """Return a message with its framing, ready to send."""
        ...


class LineFraming:
    """One message per line, as ACP agents send them.

    `printed` receives harmless lines that are not messages.
    """

    def __init__(self, printed: Callable[[str], None]) -> None:
        self._printed = printed

    async def messages(self, stdout: asyncio.StreamReader) -> AsyncGenerator[Any]:
        """Yield each message until the stream ends. Raise UnreadableMessageError."""
        while line := await self._line(stdout):
            line = line.strip()
            try:
                if line.startswith((b"{", b"[{", b"[[")):
                    yield msgspec.json.decode(line)
                elif text := line.decode():
                    self._printed(text)  # some agents print plain text on the stream
            except UnicodeDecodeError:
                raise UnreadableMessageError(f"it wrote bytes that are not text: {line[:200]!r}") from None
            except (msgspec.DecodeError, RecursionError) as error:
                raise UnreadableMessageError(f"unreadable message: {error}: {line[:200]!r}") from error

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            raise UnreadableMessageError(f"it wrote a line of more than {error.consumed} bytes") from None
        except (asyncio.IncompleteReadError, OSError):  # the end; an incomplete message is ignored
            return b""

    def framed(self, content: bytes) -> bytes:
        return content + b"\n"


class HeaderFraming:
    """A header with the length before each message, as Copilot sends them."""

    async def messages(self, stdout: asyncio.StreamReader) -> AsyncGenerator[Any]:
        """Yield each message until the stream ends. Raise UnreadableMessageError."""
        while (length := await self._next_length(stdout)) is not None:
            try:
                content: Any = json.loads(await stdout.readexactly(length))
            except asyncio.IncompleteReadError:
                raise UnreadableMessageError("it ended in the middle of a message") from None
            except RecursionError:
                raise UnreadableMessageError("it sent a message that is nested too deeply") from None
            except ValueError as error:
                raise UnreadableMessageError(f"it sent a message that is not JSON ({error})") from None
            yield content

    async def _next_length(self, stdout: asyncio.StreamReader) -> int | None:
        """Return the length of the next message, None at the end."""
        try:
            header = await stdout.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise UnreadableMessageError("it sent a line that is too long") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise UnreadableMessageError(f"it ended with {error.partial[-200:]!r}") from None
            return None
        name, _, value = header.partition(b":")
        if name.lower() != b"content-length" or not value.strip().isdigit():
            raise UnreadableMessageError(f"it sent {header[:200]!r}, which is not a message")
        length = int(value)
        if length > MESSAGE_LIMIT:
            raise UnreadableMessageError(f"it sent a message of {length} bytes (at most {MESSAGE_LIMIT} are read)")
        return length

    def framed(self, content: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


class _Message(msgspec.Struct, frozen=True):
    """A request, a notification or a response."""

    method: str | None = None
    id: int | str | None = None
    params: Any = None
    result: Any = None
    error: Json | None = None


OnNotification: TypeAlias = Callable[[str, Json], None]
OnRequest: TypeAlias = Callable[[str, Json], Awaitable[Any]]


async def no_method(method: str, params: Json) -> Any:
    """Refuse every request of the program. Raise JsonRpcError."""
    raise JsonRpcError(NO_SUCH_METHOD, f"Method not found: {method}")


class JsonRpc:
    """A connection to a program.

    `on_notification` receives its notifications, `on_request` answers its requests,
    `on_close` is called when the connection ends.
    """

    def __init__(
        self,
        program: Program,
        framing: Framing,
        *,
        on_notification: OnNotification,
        on_request: OnRequest = no_method,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.fault = ""  # why the connection ended, unless the program did
        self.is_open = True
        self._program = program
        self._framing = framing
        self._on_notification = on_notification
        self._on_request = on_request
        self._on_close = on_close
        self._numbers = count(1)
        self._waiting: dict[int | str | None, asyncio.Future[_Message | None]] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._answering: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start reading messages."""
        reading = asyncio.create_task(self._read_all(), name="jsonrpc-read")
        self._listening = [reading, asyncio.create_task(self._watch(reading), name="jsonrpc-exit")]

    async def stop(self) -> None:
        """Stop reading and cancel running answers.

        Do not wait for one that ignores it.
        """
        tasks = [*self._listening, *self._answering]
        for task in tasks:
            task.cancel()
        if tasks and (await asyncio.wait(tasks, timeout=_CANCEL_SECONDS))[1]:
            _log.warning("an answer to a program did not end when it was cancelled")

    # Send

    async def request(self, method: str, params: Mapping[str, Any], timeout: float | None = None) -> Any:
        """Send a request and return its result.

        Raise JsonRpcError, ProcessExitedError or TimeoutError.
        """
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._send({"id": number, "method": method, "params": params})
                answer = await answered
        finally:
            del self._waiting[number]
        if answer is None:
            raise self._ended()
        if answer.error is not None:
            raise _refusal(answer.error)
        return answer.result

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification. Raise ProcessExitedError."""
        await self._send({"method": method, "params": params})

    async def _send(self, message: Json) -> None:
        stdin = self._program.stdin
        if not self.is_open or stdin is None or stdin.is_closing():
            raise self._ended()
        content = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
        try:
            stdin.write(self._framing.framed(content))
            await stdin.drain()
        except (ConnectionError, RuntimeError) as error:  # the program has ended or is ending
            raise self._ended() from error

    def _ended(self) -> ProcessExitedError:
        return ProcessExitedError(self.fault or "it has ended")

    # Receive

    async def _read_all(self) -> None:
        try:
            async with aclosing(self._framing.messages(self._program.stdout)) as messages:
                async for message in messages:
                    self._take(message)
                    # Let others handle the message first: a flood must fill the pipe,
                    # not our memory.
                    await asyncio.sleep(0)
        except UnreadableMessageError as error:
            self.fault = str(error)
        except Exception as error:  # JSON of another shape ends the turn, never Atomic
            self.fault = f"it sent an invalid message ({error!r})"
        finally:
            self.is_open = False
            for answered in self._waiting.values():
                if not answered.done():
                    answered.set_result(None)
            self._on_close()

    async def _watch(self, reading: asyncio.Task[None]) -> None:
        """Stop reading after the program has ended, even if its pipe stays open."""
        await self._program.wait()
        await asyncio.wait({reading}, timeout=_DRAIN_SECONDS)
        reading.cancel()

    def _take(self, raw: Any) -> None:
        message = msgspec.convert(raw, _Message)
        if message.method is None:
            if message.id is None and message.error is None:
                raise UnreadableMessageError("it sent JSON that is not a message of the protocol")
            answered = self._waiting.get(message.id)
            if answered is not None and not answered.done():  # else the request was given up
                answered.set_result(message)
        elif message.id is None:
            self._on_notification(message.method, _object(message.params))
        else:
            task = asyncio.create_task(self._serve(message.id, message.method, _object(message.params)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _serve(self, id: int | str, method: str, params: Json) -> None:
        try:
            reply: Json = {"result": await self._on_request(method, params)}
        except JsonRpcError as refusal:
            reply = _error(refusal.code, refusal.message)
        except msgspec.ValidationError as error:
            reply = _error(_WRONG_PARAMS, f"Invalid params: {error}")
        except Exception as error:  # the program waits for an answer
            _log.exception('could not answer "%s" of a program', method)
            reply = _error(_INTERNAL_ERROR, f"Internal error: {error}")
        with suppress(ProcessExitedError):  # the program has ended
            await self._send({"id": id, **reply})


def _object(params: Any) -> Json:
    return cast("Json", params) if isinstance(params, dict) else {}


def _error(code: int, message: str) -> Json:
    return {"error": {"code": code, "message": message}}


def _refusal(error: Json) -> JsonRpcError:
    """Return the error of a response; parts that are not valid get defaults."""
    code = error.get("code")
    message = error.get("message")
    return JsonRpcError(
        code if isinstance(code, int) else -1,
        message if isinstance(message, str) else "no reason given",
        error.get("data"),
    )
