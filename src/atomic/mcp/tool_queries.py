"""List the tools of several servers at once.

This starts programs, so the caller chooses which.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from atomic.mcp.http import Found, tools_at_address
from atomic.mcp.model import McpAnswer, McpEntry, McpVariableError, Transport
from atomic.mcp.tool_list import (
    MAX_BYTES,
    TOO_MUCH,
    Budget,
    Json,
    TalkError,
    list_tools,
    messages_in,
    reply_to,
    result_in,
)
from atomic.processes import ExecError, Program, running

# Seconds for each server.
PATIENCE = 10.0
# Characters of a reason.
_MAX_REASON = 300


async def ask_for_tools(
    entries: Sequence[McpEntry],
    *,
    variables: Mapping[str, str],
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    patience: float = PATIENCE,
) -> list[McpAnswer]:
    """Start or call each server, list its tools and end it.

    Keep the order of the entries.

    `variables` replace those of the configuration; `env` is the environment of
    programs, without the entry's own variables.
    """

    async def ask(entry: McpEntry) -> McpAnswer:
        resolved = entry
        try:
            resolved = entry.resolved(variables)
            tools, transport = await _ask(resolved, env, cwd, patience)
        except McpVariableError as error:
            reason = f'it needs the variable "{error.variable}", {error.reason}'
            return McpAnswer(entry=entry, resolved=entry, error=reason)
        except TalkError as error:
            # A program may print a secret before it ends.
            reason = " ".join(resolved.redactor().text(str(error)).split())[:_MAX_REASON]
            return McpAnswer(entry=entry, resolved=resolved, error=reason)
        return McpAnswer(entry=entry, resolved=msgspec.structs.replace(resolved, transport=transport), tools=tools)

    return await asyncio.gather(*(ask(entry) for entry in entries))


async def _ask(entry: McpEntry, env: Mapping[str, str], cwd: str | os.PathLike[str] | None, patience: float) -> Found:
    """Return the tools of one server. Raises TalkError."""
    try:
        async with asyncio.timeout(patience):
            if entry.transport is Transport.STDIO:
                return await _tools_of_program(entry, env, cwd), entry.transport
            return await _in_thread(lambda: tools_at_address(entry, patience))
    except TimeoutError:
        raise TalkError(f"it does not answer within {patience:g} s") from None


async def _in_thread(work: Callable[[], Found]) -> Found:
    """Run a blocking call in a daemon thread, which does not delay the end of the
    process.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Found] = loop.create_future()

    def settle(found: Found | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        elif found is not None:
            outcome.set_result(found)

    def run() -> None:
        found: Found | None = None
        failure: Exception | None = None
        try:
            found = work()
        except Exception as error:  # raised again in the task that awaits it
            failure = error
        # The loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=run, daemon=True, name="mcp-tools").start()
    return await outcome


async def _tools_of_program(entry: McpEntry, env: Mapping[str, str], cwd: str | os.PathLike[str] | None) -> list[str]:
    """Start the program, list its tools and end it. Raises TalkError."""
    try:
        async with running(*entry.command, cwd=cwd, env={**env, **entry.env}, limit=MAX_BYTES) as program:
            return await _Streams(program).ask()
    except ExecError as error:
        raise TalkError(str(error)) from error


class _Streams:
    """The program's standard streams; each line is a message."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._budget = Budget()

    async def ask(self) -> list[str]:
        talk = list_tools()
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
                reply = reply_to(message)
                if reply is not None:
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
            except ValueError:
                # A line without an end.
                raise TalkError(TOO_MUCH) from None
        if not line:
            raise await self._ended()
        return line

    async def _ended(self) -> TalkError:
        """Return the error for a program that has closed its streams."""
        await self._program.stop()
        reason = f"it ended with exit code {self._program.exit_code}"
        last = self._program.stderr_tail.splitlines()
        return TalkError(f"{reason}: {last[-1]}" if last else reason)
