"""The real OpenCode behind a wire that swallows its events for as long as the file $MUTE exists."""

from __future__ import annotations

import asyncio
import os
import sys


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, lossy: bool) -> None:
    while data := await reader.read(64 * 1024):
        if lossy and os.path.exists(os.environ["MUTE"]):
            continue
        writer.write(data)
        await writer.drain()
    writer.close()


async def connect(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    first = await reader.readuntil(b"\r\n")
    back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
    back_writer.write(first)
    await asyncio.gather(
        pump(reader, back_writer, lossy=False),
        pump(back_reader, writer, lossy=b"/global/event" in first),
        return_exceptions=True,
    )
    writer.close()


async def main() -> None:
    real = await asyncio.create_subprocess_exec(
        os.environ["REAL_OPENCODE"], *sys.argv[1:], stdout=asyncio.subprocess.PIPE
    )
    assert real.stdout is not None
    while b"listening on" not in (line := await real.stdout.readline()):
        assert line, "OpenCode did not start"
    port = int(line.rpartition(b":")[2])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await connect(port, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):  # who hangs up has nothing more to say
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(f"opencode server listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await real.wait()


if __name__ == "__main__":
    asyncio.run(main())
