"""A proxy for the real OpenCode that silently drops its events while the file $MUTE exists.

If $CLOSES is set, it closes the connections that were silent when the file is gone.
"""

from __future__ import annotations

import asyncio
import os
import sys


class Wire:
    """A connection; only one that carries the event stream can break."""

    def __init__(self) -> None:
        self._carries_events = False
        self._is_broken = False

    async def forward_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64 * 1024):
            self._carries_events = self._carries_events or b"GET /global/event" in data
            writer.write(data)
            await writer.drain()
        writer.close()

    async def forward_response(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64 * 1024):
            if self._is_broken:
                continue
            if self._carries_events and os.path.exists(os.environ["MUTE"]):
                self._is_broken = True
                if "CLOSES" in os.environ:
                    await _until_gone(os.environ["MUTE"])
                    break
                continue
            writer.write(data)
            await writer.drain()
        writer.close()


async def _until_gone(path: str) -> None:
    while os.path.exists(path):
        await asyncio.sleep(0.02)


async def main() -> None:
    real = await asyncio.create_subprocess_exec(
        os.environ["REAL_OPENCODE"], *sys.argv[1:], stdout=asyncio.subprocess.PIPE
    )
    assert real.stdout is not None
    while b"listening on" not in (line := await real.stdout.readline()):
        assert line, "OpenCode did not start"
    port = int(line.rpartition(b":")[2])

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        wire = Wire()
        # Either side may close its connection at any time.
        await asyncio.gather(
            wire.forward_request(reader, back_writer),
            wire.forward_response(back_reader, writer),
            return_exceptions=True,
        )

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    print(f"opencode server listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await real.wait()


if __name__ == "__main__":
    asyncio.run(main())
