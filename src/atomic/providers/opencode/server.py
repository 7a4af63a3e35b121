"""One `opencode serve` for many sessions: on loopback, with a password that nobody else knows.

What the agent runs lives in process sessions of its own and survives the server; a mark in the environment finds it.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.http1 import LoopbackClient
from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.processes.leftovers import temporary_prefix
from atomic.providers.errors import ProgramFailedError
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.plan import ServerPlan
from atomic.providers.opencode.router import Router
from atomic.providers.opencode.stream import EventStream
from atomic.providers.starting import not_started, start_seconds
from atomic.providers.tool_server import serving_tools

SUSPICION = 20.0  # seconds that a server which did not stop a turn has to answer at all
_USER = "atomic"
_LISTENING = re.compile(rb"listening on (http://\S+)")
_LOOPBACK = "http://127.0.0.1:"


class Server:
    """A running OpenCode."""

    def __init__(self, program: Program, client: LoopbackClient, *, liveness: float) -> None:
        self.api, self.router = Api(client), Router()
        self.lost: ProgramFailedError | None = None  # why it can no longer be used
        self._program = program
        self._stream = EventStream(client, self.router, liveness=liveness, has_ended=self._has_ended)
        self._suspected = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def url(self) -> str:
        return self.api.url

    def suspect(self) -> None:
        """It did not stop a turn: see whether it still listens to anybody. If not, it is lost for all."""
        self._suspected.set()

    # its life -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Hear it while the context lasts. Raises ProgramFailedError if it cannot be heard."""
        tasks = [asyncio.create_task(work) for work in (self._hear(), self._drain(), self._doubt())]
        try:
            await self._until_open(tasks[0])
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._lose("it was ended")

    async def _until_open(self, hearing: asyncio.Task[None]) -> None:
        opened = asyncio.create_task(self._stream.open.wait())
        try:
            await asyncio.wait({opened, hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self.lost is not None:
            raise self.lost

    async def _hear(self) -> None:
        reason = await self._stream.read()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # its end can be heard before it can be seen
                await self._program.wait()
        await self._give_up(reason)

    async def _drain(self) -> None:
        """Read what it prints: nobody needs it, but it would stand still."""
        while await self._program.stdout.read(64 * 1024):
            pass

    async def _doubt(self) -> None:
        while True:
            await self._suspected.wait()
            try:
                await self.api.healthy(limit=0.1 if _is_stopped(self.pid) else SUSPICION)
            except ProgramFailedError as error:
                await self._give_up(str(error))
                return
            self._suspected.clear()

    async def _give_up(self, reason: str) -> None:
        """Nobody can use it any more: what is left of it is ended, whoever still has a session in it."""
        self._lose(reason)
        await self._program.stop()

    def _has_ended(self) -> bool:
        return self._program.exit_code is not None

    def _lose(self, reason: str) -> None:
        if self.lost is None:
            self.lost = ProgramFailedError(f"OpenCode {self._how(reason)}", provider="opencode")
            self.router.tell_all(self.lost)

    def _how(self, reason: str) -> str:
        code, said = self._program.exit_code, self._program.last_words
        if code is None:
            return f"(process {self.pid}) is lost: {reason}"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"(process {self.pid}) {how}" + (f": {said[-500:]}" if said else "")


@asynccontextmanager
async def serving(plan: ServerPlan) -> AsyncGenerator[Server]:
    """Start a server; leaving the context ends it and all that it started. Raises ProgramFailedError."""
    mark, password = new_mark(), secrets.token_urlsafe(32)
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(serving_tools(plan.tools)) if plan.tools else None
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=temporary_prefix("opencode"))))
        env = {
            **plan.environment(tools, folder),
            **mark,
            "OPENCODE_SERVER_USERNAME": _USER,
            "OPENCODE_SERVER_PASSWORD": password,
        }
        stack.push_async_callback(end_marked, mark)
        program = await stack.enter_async_context(_running(plan, env))
        seconds = start_seconds()
        try:
            async with asyncio.timeout(seconds):  # one limit, until it has said where it is and been heard
                url = await _address(program)
                client = LoopbackClient(url, user=_USER, password=password)
                server = Server(program, client, liveness=plan.liveness)
                await stack.enter_async_context(server.watched())
        except TimeoutError:
            raise not_started("OpenCode", "opencode", seconds) from None
        async with _swept(program, mark):
            yield server


@asynccontextmanager
async def _running(plan: ServerPlan, env: Mapping[str, str]) -> AsyncGenerator[Program]:
    # Not in a project's folder: a server of many sessions must not take up one's settings for all.
    arguments = ("serve", "--hostname", "127.0.0.1", "--port", "0", *plan.args)
    try:
        async with running(plan.program, *arguments, cwd="/", env=env, stdin=False) as program:
            yield program
    except ExecError as error:
        raise ProgramFailedError(str(error), provider="opencode") from error


@asynccontextmanager
async def _swept(program: Program, mark: dict[str, str]) -> AsyncGenerator[None]:
    """When the server dies, what it started dies too, at once and not only when the last session ends."""

    async def sweep() -> None:
        await program.wait()
        await end_marked(mark)

    sweeping = asyncio.create_task(sweep())
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)


async def _address(program: Program) -> str:
    """Where it listens, as it says itself: the port is its own choice. Raises ProgramFailedError."""
    said: list[bytes] = []
    try:
        while line := await program.stdout.readline():
            if found := _LISTENING.search(line):
                return _on_loopback(found[1].decode())
            said.append(line)
        await program.wait()
    except ValueError as error:  # a line beyond all bounds
        raise ProgramFailedError(f"OpenCode did not start: {error}", provider="opencode") from error
    words = program.last_words or b"".join(said).decode("utf-8", "replace").strip()
    raise ProgramFailedError(
        f"OpenCode could not be started (exit code {program.exit_code}): {words[-800:]}", provider="opencode"
    )


def _on_loopback(url: str) -> str:
    if not url.startswith(_LOOPBACK):
        raise ProgramFailedError(
            f"OpenCode listens on {url}, where others could reach it",
            provider="opencode",
            remedy="remove --hostname and --mdns from providers.opencode.args",
        )
    return url


def _is_stopped(pid: int) -> bool:
    """Whether it stands still by a signal: it would not answer however long one waits."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"
