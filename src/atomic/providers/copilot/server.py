"""One Copilot process for many sessions: the first starts it, the last ends it.

It uses its standard streams, so there is no port that others could reach. Its tools run
in process sessions of their own; a mark in the environment identifies them, even after
the program was killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.jsonrpc import HeaderFraming, Json, JsonRpc, JsonRpcError, ProcessExitedError
from atomic.providers.programs import describe_exit, not_started, start_seconds
from atomic.providers.shared_server import Shared

AnswerT = TypeVar("AnswerT")

PROTOCOL = 3  # supported version
_FLAGS = ("--headless", "--stdio", "--no-auto-update", "--log-level", "error")


Listener = Callable[[Mapping[str, Any]], None]


class _Greeting(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: int | None = None


class CommandLine(msgspec.Struct, frozen=True):
    """The options that all sessions of one server share."""

    program: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    launcher: tuple[str, ...] = ()  # words before the command


class Server:
    """A running Copilot, the connection to it, and the listeners of its sessions."""

    def __init__(self, program: Program) -> None:
        self.ended = asyncio.Event()
        self.rpc = JsonRpc(program, HeaderFraming(), on_notification=self._receive, on_close=self.ended.set)
        self._program = program
        self._listeners: dict[str, Listener] = {}
        self._is_given_up = False

    async def start(self) -> None:
        """Start the protocol. Raise ProgramFailedError."""
        self.rpc.start()
        seconds = start_seconds()
        try:
            answer = await self.rpc.request("connect", {"supportedTaskKinds": ["agent", "client", "shell"]}, seconds)
            version = msgspec.convert(answer, _Greeting).protocol_version
        except TimeoutError:
            raise not_started("Copilot", "copilot", seconds) from None
        except (JsonRpcError, ProcessExitedError, msgspec.ValidationError) as error:
            await self._exited()
            raise _failed(f"Copilot did not start: {error}", self._program) from error
        if version != PROTOCOL:
            raise _failed(
                f"Copilot uses version {version} of its protocol, Atomic supports version {PROTOCOL}", self._program
            )

    def listen(self, session: str, listener: Listener) -> None:
        """Send events of that session to the listener."""
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        """Stop sending events of that session."""
        self._listeners.pop(session, None)

    async def call(self, method: str, params: Mapping[str, Any], *, timeout: float | None = None) -> None:
        """Send a request.

        Raise ProviderError with the program's message, or TimeoutError.
        """
        await self.fetch(method, params, object, timeout=timeout)

    async def fetch(
        self, method: str, params: Mapping[str, Any], answer: type[AnswerT], *, timeout: float | None = None
    ) -> AnswerT:
        """Send a request and return its answer.

        Raise ProviderError with the program's message, or TimeoutError.
        """
        try:
            return msgspec.convert(await self.rpc.request(method, params, timeout), answer)
        except ProcessExitedError as error:
            raise ProgramFailedError(f"Copilot has ended: {error}", provider="copilot") from error
        except JsonRpcError as error:
            failed_method, _, message = error.message.partition(" failed with message: ")
            raise ProviderError(f"Copilot: {message or failed_method}", provider="copilot") from error
        except msgspec.ValidationError as error:
            raise ProviderError(f"Copilot sent an unknown answer to {method}: {error}", provider="copilot") from error

    async def last_words(self) -> str:
        """Return why it ended."""
        if self._is_given_up:
            return f"Copilot (process {self._program.pid}) stopped answering and was ended"
        if self.rpc.fault:
            return f"Copilot (process {self._program.pid}) sent something unreadable: {self.rpc.fault}"
        await self._exited()
        code = self._program.exit_code
        how = "closed its output" if code is None else describe_exit(code)
        output = self._program.stderr_tail
        return f"Copilot (process {self._program.pid}) {how}" + (f": {output[-500:]}" if output else "")

    async def _exited(self) -> None:
        """Wait briefly for the process: its output may end first."""
        try:
            async with asyncio.timeout(1):
                await self._program.wait()
        except TimeoutError:
            pass

    def give_up(self) -> None:
        """Mark a server that does not answer as ended, so that nothing waits for it."""
        self._is_given_up = True
        self.ended.set()

    def _receive(self, method: str, params: Json) -> None:
        if method == "session.event" and (listener := self._listeners.get(params["sessionId"])) is not None:
            listener(params["event"])


def shared_server(line: CommandLine) -> Shared[Server]:
    """Return the server of this process and event loop with that command line."""
    servers = _SERVERS.setdefault(asyncio.get_running_loop(), {})
    if line not in servers:
        servers[line] = Shared(lambda: _serving(line))
    return servers[line]


_SERVERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[CommandLine, Shared[Server]]] = WeakKeyDictionary()


@asynccontextmanager
async def _serving(line: CommandLine) -> AsyncGenerator[Server]:
    mark = new_mark()
    try:
        # Not in a project's folder: sessions of other projects must not get its
        # settings.
        words = (*line.launcher, line.program, *line.args, *_FLAGS)
        async with running(*words, cwd="/", env={**dict(line.env), **mark}) as program:
            server = Server(program)
            try:
                await server.start()
                yield server
            finally:
                server.ended.set()
                await server.rpc.stop()
    except ExecError as error:
        raise ProgramFailedError(str(error), provider="copilot") from error
    finally:
        await end_marked(mark)


def _failed(message: str, program: Program) -> ProgramFailedError:
    output = program.stderr_tail
    return ProgramFailedError(message + (f" ({output[-500:]})" if output else ""), provider="copilot")
