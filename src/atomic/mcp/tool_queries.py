"""List the tools of several servers at once. This starts programs, so the caller chooses which."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from atomic.base.redaction import Redactor
from atomic.mcp.errors import McpVariableError
from atomic.mcp.http import Found, tools_at_address
from atomic.mcp.model import McpAnswer, McpEntry, Transport
from atomic.mcp.stdio import tools_of_program
from atomic.mcp.tool_list import TalkError

PATIENCE = 10.0  # seconds for each server
_LONGEST = 300  # characters of a reason


async def ask_for_tools(
    entries: Sequence[McpEntry],
    *,
    variables: Mapping[str, str],
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    patience: float = PATIENCE,
) -> list[McpAnswer]:
    """Start or call each server, list its tools and end it; return the answers in the order of the entries.

    `variables` resolve those of the configuration; `env` is the environment of programs, without the entry's own.
    """
    return await asyncio.gather(*(_ask(entry, variables, _Asker(env, cwd, patience)) for entry in entries))


class _Asker(msgspec.Struct, frozen=True):
    env: Mapping[str, str]
    cwd: str | os.PathLike[str] | None
    patience: float

    async def ask(self, entry: McpEntry) -> Found:
        """Return the tools of one server. Raise TalkError."""
        try:
            async with asyncio.timeout(self.patience):
                if entry.transport is Transport.STDIO:
                    return await tools_of_program(entry, self.env, self.cwd), entry.transport
                return await _in_thread(lambda: tools_at_address(entry, self.patience))
        except TimeoutError:
            raise TalkError(f"it does not answer within {self.patience:g} s") from None


async def _ask(entry: McpEntry, variables: Mapping[str, str], asker: _Asker) -> McpAnswer:
    resolved = entry
    try:
        resolved = entry.resolved(variables)
        tools, transport = await asker.ask(resolved)
    except McpVariableError as error:
        return McpAnswer(entry=entry, resolved=entry, error=f'it needs the variable "{error.variable}", {error.reason}')
    except TalkError as error:
        return McpAnswer(entry=entry, resolved=resolved, error=_shown(str(error), resolved))
    return McpAnswer(entry=entry, resolved=msgspec.structs.replace(resolved, transport=transport), tools=tools)


def _shown(reason: str, entry: McpEntry) -> str:
    """Return one redacted line; a program may print a secret before it ends."""
    redactor = Redactor.of_environment(entry.env, headers=[entry.headers])
    return " ".join(redactor.text(reason).split())[:_LONGEST]


async def _in_thread(work: Callable[[], Found]) -> Found:
    """Run a blocking call in a daemon thread, so that a server that never answers does not delay our exit."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Found] = loop.create_future()

    def run() -> None:
        try:
            found = work()
        except Exception as error:  # raised again where it is awaited
            tell(_fail, error)
        else:
            tell(_succeed, found)

    def tell(settle: Callable[..., None], what: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, outcome, what)

    threading.Thread(target=run, daemon=True, name="mcp-tools").start()
    return await outcome


def _succeed(outcome: asyncio.Future[Found], found: Found) -> None:
    if not outcome.done():
        outcome.set_result(found)


def _fail(outcome: asyncio.Future[Found], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)
