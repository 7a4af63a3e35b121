"""An HTTP/1.1 server on loopback: accept clients, read requests, write responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import msgspec

from atomic.base.http import (
    LAST_CHUNK,
    MAX_HEAD,
    Body,
    MalformedError,
    TooLongError,
    encode_chunk,
    encode_head,
    read_all,
    read_head,
)

HOST = "127.0.0.1"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def listen(serve: Serve, on_failure: Callable[[BaseException], None], *, port: int = 0) -> AsyncGenerator[int]:
    """Serve each client in its own task, and yield the port.

    Leaving the context cancels these tasks and closes their connections. `on_failure`
    gets the exceptions that they raise. Raises OSError.
    """
    clients = _Clients(serve, on_failure)
    server = await asyncio.start_server(clients.begin, HOST, port, limit=MAX_HEAD)
    try:
        chosen: int = server.sockets[0].getsockname()[1]
        yield chosen
    finally:
        try:
            await _close(server)
        finally:
            await clients.end()
            await server.wait_closed()


async def _close(server: asyncio.Server) -> None:
    """Stop accepting, after connections that asyncio has accepted have reached
    `_Clients`.

    That takes two turns of the loop. If the server is closed in between, asyncio drops
    the connection and leaks its socket.
    """
    loop = asyncio.get_running_loop()
    try:
        for listener in server.sockets:
            loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        server.close()


class _Clients:
    def __init__(self, serve: Serve, on_failure: Callable[[BaseException], None]) -> None:
        self._serve = serve
        self._on_failure = on_failure
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._writers[task] = writer
        task.add_done_callback(self._ended)

    async def end(self) -> None:
        writers = dict(self._writers)
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in writers.values()), return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._writers.pop(task).transport.abort()  # also if the task was cancelled before it began
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


class BadRequestError(Exception):
    """A request cannot be read; `status` is the response to send."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        self.status = status
        super().__init__(reason)


class Request(msgspec.Struct, frozen=True):
    """A request; names of headers are in lower case, the path has no query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


async def read_request_head(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request without its body, None at the end.

    Raise BadRequestError.
    """
    try:
        first, headers = await read_head(reader)
    except asyncio.IncompleteReadError:
        return None
    except TooLongError as error:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(error)) from error
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, f'"{first[:40]}" is not a request')
    return Request(parts[0], parts[1].partition("?")[0], headers)


async def read_request_body(reader: asyncio.StreamReader, head: Request, *, limit: int) -> bytes:
    """Return the body of a request.

    Raises:
        BadRequestError: it is too long or its length is invalid.
        IncompleteReadError: the connection ends too early.
    """
    try:
        return await read_all(Body(reader, head.headers), limit)
    except TooLongError as error:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except MalformedError as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error


class ResponseWriter:
    """Writes responses to a connection: whole ones, and streams of events."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, last: bool = False
    ) -> None:
        """Send a complete response; with `last` the connection closes after it."""
        fields = {"content-length": str(len(body)), **(headers or {})}
        if body:
            fields.setdefault("content-type", "application/json")
        if last:
            fields["connection"] = "close"
        await self.write(_encode_response_head(status, fields) + body)

    async def begin(self, status: int, fields: Mapping[str, str]) -> None:
        """Send the head of a response."""
        await self.write(_encode_response_head(status, fields))

    async def begin_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events."""
        fields = {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
        await self.begin(HTTPStatus.OK, {**fields, **headers})

    async def send_event(self, data: bytes, name: str = "message") -> None:
        """Send one event; without a name it has only data."""
        head = f"event: {name}\n".encode() if name else b""
        await self.write_chunk(head + b"data: " + data + b"\n\n")

    async def send_heartbeat(self) -> None:
        """Send a comment, so that the client does not consider the connection dead."""
        await self.write_chunk(b": still running\n\n")

    async def end_events(self) -> None:
        """End the stream; the connection may be used again."""
        await self.write(LAST_CHUNK)

    async def write_chunk(self, data: bytes) -> None:
        await self.write(encode_chunk(data))

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def _encode_response_head(status: int, fields: Mapping[str, str]) -> bytes:
    return encode_head(f"HTTP/1.1 {status} {_PHRASES.get(status, 'Error')}", fields)
