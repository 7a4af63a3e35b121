"""One Copilot for many sessions: started by the first, ended with the last, and never reachable for anybody else.

It speaks on its standard streams, so there is no port. What it starts for its tools lives in sessions of its own; a
mark in the environment finds all of it, also after the program was killed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.copilot.wire import Headed
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.jsonrpc import Json, JsonRpc, JsonRpcError, ProcessExitedError
from atomic.providers.shared import Shared
from atomic.providers.starting import not_started, start_seconds

AnswerT = TypeVar("AnswerT")

PROTOCOL = 3  # the version that is spoken here
_FLAGS = ("--headless", "--stdio", "--no-auto-update", "--log-level", "error")


Listener = Callable[[Mapping[str, Any]], None]


class _Greeting(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int | None = None


class CommandLine(msgspec.Struct, frozen=True):
    """What cannot differ among the sessions of one server."""

    program: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]


class Server:
    """A running Copilot, the wire to it, and those who listen."""

    def __init__(self, program: Program) -> None:
        self.ended = asyncio.Event()
        self.wire = JsonRpc(program, Headed(), hear=self._hear, closed=self.ended.set)
        self._program = program
        self._listeners: dict[str, Listener] = {}
        self._is_given_up = False

    async def start(self) -> None:
        """Shake hands. Raises ProgramFailedError."""
        self.wire.start()
        seconds = start_seconds()
        try:
            answer = await self.wire.ask("connect", {"supportedTaskKinds": ["agent", "client", "shell"]}, seconds)
            version = msgspec.convert(answer, _Greeting).protocol_version
        except TimeoutError:
            raise not_started("Copilot", "copilot", seconds) from None
        except (JsonRpcError, ProcessExitedError, msgspec.ValidationError) as error:
            await self._exited()
            raise _failed(f"Copilot could not be started: {error}", self._program) from error
        if version != PROTOCOL:
            raise _failed(f"Copilot speaks version {version} of its protocol, Atomic {PROTOCOL}", self._program)

    def listen(self, session: str, listener: Listener) -> None:
        """Tell the events of that session from now on."""
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        """The session is no longer ours."""
        self._listeners.pop(session, None)

    async def call(self, method: str, params: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Have the program do something. Raises ProviderError with its words, TimeoutError."""
        await self.fetch(method, params, object, timeout=timeout)

    async def fetch(
        self, method: str, params: Mapping[str, Any], answer: type[AnswerT], *, timeout: float | None = None
    ) -> AnswerT:
        """Ask the program for something. Raises ProviderError with its words, TimeoutError."""
        try:
            return msgspec.convert(await self.wire.ask(method, params, timeout), answer)
        except (JsonRpcError, ProcessExitedError) as error:
            raise self._problem(error) from error
        except msgspec.ValidationError as error:
            raise ProviderError(f"Copilot answers {method} in an unknown way: {error}", provider="copilot") from error

    def _problem(self, error: JsonRpcError | ProcessExitedError) -> ProviderError:
        """The error in the words of the program."""
        if isinstance(error, ProcessExitedError):
            return ProgramFailedError(f"Copilot is gone: {error}", provider="copilot")
        words = error.message.partition(" failed with message: ")
        return ProviderError(f"Copilot: {words[2] or words[0]}", provider="copilot")

    async def last_words(self) -> str:
        """Why it is no longer there."""
        if self._is_given_up:
            return f"Copilot (process {self._program.pid}) did not answer any more and was ended"
        if self.wire.fault:
            return f"Copilot (process {self._program.pid}) cannot be understood any more: {self.wire.fault}"
        await self._exited()
        code = self._program.exit_code
        if code is None:
            how = "says nothing any more"
        else:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = self._program.last_words
        return f"Copilot (process {self._program.pid}) {how}" + (f": {said[-500:]}" if said else "")

    async def _exited(self) -> None:
        """Its end can be heard before it can be seen."""
        try:
            async with asyncio.timeout(1):
                await self._program.wait()
        except TimeoutError:
            pass

    def give_up(self) -> None:
        """It does not even answer: all who wait for it are told at once, however long its end may take."""
        self._is_given_up = True
        self.ended.set()

    def _hear(self, method: str, params: Json) -> None:
        if method == "session.event" and (listener := self._listeners.get(params["sessionId"])) is not None:
            listener(params["event"])


def shared_server(line: CommandLine) -> Shared[Server]:
    """The one server of this process (and event loop) with that command line."""
    servers = _SERVERS.setdefault(asyncio.get_running_loop(), {})
    if line not in servers:
        servers[line] = Shared(lambda: _serving(line))
    return servers[line]


_SERVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[CommandLine, Shared[Server]]] = WeakKeyDictionary()


@asynccontextmanager
async def _serving(line: CommandLine) -> AsyncGenerator[Server]:
    mark = new_mark()
    try:
        # Not in a project's folder: a server of many sessions must not take up one's settings for all.
        async with running(line.program, *line.args, *_FLAGS, cwd="/", env={**dict(line.env), **mark}) as program:
            server = Server(program)
            try:
                await server.start()
                yield server
            finally:
                server.ended.set()
                await server.wire.stop()
    except ExecError as error:
        raise ProgramFailedError(str(error), provider="copilot") from error
    finally:
        await end_marked(mark)


def _failed(what: str, program: Program) -> ProgramFailedError:
    said = program.last_words
    return ProgramFailedError(what + (f" ({said[-500:]})" if said else ""), provider="copilot")
