"""List the tools of a server that is a program, over its standard streams."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from atomic.mcp.model import McpEntry
from atomic.mcp.tool_list import MAX_BYTES, Budget, Json, TalkError, asking_for_tools, messages_in, reply_to, result_in
from atomic.processes import ExecError, Program, running


async def tools_of_program(entry: McpEntry, env: Mapping[str, str], cwd: str | os.PathLike[str] | None) -> list[str]:
    """Start the program, list its tools and end it; the entry's variables are added to `env`. Raise TalkError."""
    try:
        async with running(*entry.command, cwd=cwd, env={**env, **entry.env}, limit=MAX_BYTES) as program:
            return await _Streams(program).ask()
    except ExecError as error:
        raise TalkError(str(error)) from error


class _Streams:
    """The program's standard streams; each line is a message."""

    def __init__(self, program: Program) -> None:
        self._program, self._budget = program, Budget()

    async def ask(self) -> list[str]:
        talk = asking_for_tools()
        message = next(talk)
        while True:
            await self._send(message)
            try:
                message = talk.send(await self._answer(message) if "id" in message else {})
            except StopIteration as end:
                return end.value

    async def _answer(self, question: Json) -> Json:
        while True:
            for message in messages_in(await self._line()):
                result = result_in(message, question)
                if result is not None:
                    return result
                if (reply := reply_to(message)) is not None:
                    await self._send(reply)

    async def _send(self, message: Json) -> None:
        assert self._program.stdin is not None
        try:
            self._program.stdin.write(msgspec.json.encode(message) + b"\n")
            await self._program.stdin.drain()
        except ConnectionError:
            raise await self._ended() from None

    async def _line(self) -> bytes:
        line = b"\n"
        while line and not line.strip():
            try:
                line = self._budget.spend(await self._program.stdout.readline())
            except ValueError:  # a line without an end
                raise TalkError(f"it says more than {MAX_BYTES:,} bytes") from None
        if not line:
            raise await self._ended()
        return line

    async def _ended(self) -> TalkError:
        """Return the error for a program that has closed its streams."""
        await self._program.stop()
        last = self._program.stderr_tail.splitlines()
        return TalkError(f"it ended with exit code {self._program.exit_code}{f': {last[-1]}' if last else ''}")
