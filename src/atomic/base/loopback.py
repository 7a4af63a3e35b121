"""A server on loopback whose end is the end of everything that it had begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

HOST = "127.0.0.1"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@asynccontextmanager
async def listening(
    serve: Serve, failed: Callable[[BaseException], None], *, port: int = 0, limit: int
) -> AsyncGenerator[int]:
    """Serve each client in a task of its own, and give the port.

    Leaving it cancels these tasks and hangs up; `failed` is told what one of them raised. Raises OSError.
    """
    clients = _Clients(serve, failed)
    server = await asyncio.start_server(clients.begin, HOST, port, limit=limit)
    try:
        found: int = server.sockets[0].getsockname()[1]
        yield found
    finally:
        try:
            await _close(server)
        finally:
            await clients.end()
            await server.wait_closed()


async def _close(server: asyncio.Server) -> None:
    """Let nobody in any more, and let those get in who are at the door.

    A connection that asyncio has accepted is ours two turns of the loop later. Where the server is closed in between,
    asyncio drops it and leaves its socket open.
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
    def __init__(self, serve: Serve, failed: Callable[[BaseException], None]) -> None:
        self._serve, self._failed = serve, failed
        self._writers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._writers[task] = writer
        task.add_done_callback(self._gone)

    async def end(self) -> None:
        writers = dict(self._writers)
        for task in writers:
            task.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in writers.values()), return_exceptions=True)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._writers.pop(task).transport.abort()  # also where the task was cancelled before it began
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
