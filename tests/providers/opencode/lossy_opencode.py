"""The real OpenCode behind wires that break without a sound while the file $MUTE exists, if they carry its events."""

from __future__ import annotations

import asyncio
import os
import sys


class Wire:
    """One connection; what was asked on it decides whether it can break."""

    def __init__(self) -> None:
        self._carries_events = self._is_broken = False

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64 * 1024):
            self._carries_events = self._carries_events or b"GET /global/event" in data
            writer.write(data)
            await writer.drain()
        writer.close()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(64 * 1024):
            self._is_broken = self._is_broken or (self._carries_events and os.path.exists(os.environ["MUTE"]))
            if not self._is_broken:
                writer.write(data)
                await writer.drain()
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
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
        wire = Wire()
        # Who hangs up has nothing more to say.
        await asyncio.gather(wire.ask(reader, back_writer), wire.answer(back_reader, writer), return_exceptions=True)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(f"opencode server listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await real.wait()


if __name__ == "__main__":
    asyncio.run(main())
