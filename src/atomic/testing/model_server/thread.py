"""A model server for tests that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager

from atomic.testing.model_server.server import ModelServer


@contextmanager
def in_thread(server: ModelServer) -> Generator[ModelServer]:
    """Run a server in a thread of its own: `with in_thread(ModelServer({...})) as server`."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()
    threading.Thread(target=_run, args=(server, started, ended), name="model-server", daemon=True).start()
    loop, stop = started.result()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        ended.result()


def _run(
    server: ModelServer, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]], ended: Future[None]
) -> None:
    async def serve() -> None:
        stop = asyncio.Event()
        async with server:
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()

    try:
        asyncio.run(serve())
    except BaseException as error:
        (ended if started.done() else started).set_exception(error)
    else:
        ended.set_result(None)
