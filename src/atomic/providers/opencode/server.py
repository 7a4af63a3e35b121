"""One `opencode serve` for many sessions: on loopback, with a secret password.

Commands of the agent run in process sessions of their own and survive the server. A
mark in their environment identifies them.

The first server of a program starts before the others: it creates OpenCode's database,
or converts that of an older version, before it listens. Of several servers that do so
at once, all but one end with an error.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
from collections.abc import AsyncGenerator, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakKeyDictionary

from atomic.base.http import LoopbackClient
from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.errors import ProgramFailedError
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.launch import ServerPlan
from atomic.providers.opencode.stream import EventStream, Router
from atomic.providers.programs import describe_exit, not_started, start_seconds
from atomic.providers.shared_server import Shared
from atomic.providers.tool_server import serving_tools
from atomic.providers.turn import cancel_all

HEALTH_SECONDS = 20.0  # for an answer of a server that did not stop a turn
_USER = "atomic"
_LISTENING = re.compile(rb"listening on (http://\S+)")
_LOOPBACK = "http://127.0.0.1:"
_PAUSE = 0.02  # seconds between two looks
# Programs that this process has started with the database in a folder. An update of
# OpenCode is another program.
_STARTED: set[tuple[int, int, Path]] = set()


class Server:
    """A running OpenCode server."""

    def __init__(self, program: Program, client: LoopbackClient, *, liveness: float) -> None:
        self.api = Api(client)
        self.router = Router()
        self.lost: ProgramFailedError | None = None  # why it cannot be used
        self._program = program
        self._stream = EventStream(
            client, self.router, liveness=liveness, has_ended=lambda: program.exit_code is not None
        )
        self._suspected = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._program.pid

    @property
    def url(self) -> str:
        return self.api.url

    def suspect(self) -> None:
        """Check whether it still answers, after it did not stop a turn.

        If it does not, it is lost for all sessions.
        """
        self._suspected.set()

    # Life

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Read its events in this context. Raise ProgramFailedError if that fails."""
        tasks = [asyncio.create_task(work) for work in (self._receive(), self._drain(), self._check_health())]
        try:
            await self._until_open(tasks[0])
            yield
        finally:
            await cancel_all(*tasks)
            self._lose("it was ended")

    async def _until_open(self, receiving: asyncio.Task[None]) -> None:
        opened = asyncio.create_task(self._stream.open.wait())
        try:
            await asyncio.wait({opened, receiving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if self.lost is not None:
            raise self.lost

    async def _receive(self) -> None:
        reason = await self._stream.read()
        with suppress(TimeoutError):
            async with asyncio.timeout(1):  # the stream may end before the process does
                await self._program.wait()
        await self._give_up(reason)

    async def _drain(self) -> None:
        """Read and discard its output, or the full pipe would block it."""
        while await self._program.stdout.read(64 * 1024):
            pass

    async def _check_health(self) -> None:
        while True:
            await self._suspected.wait()
            try:
                await self.api.healthy(limit=0.1 if _is_stopped(self.pid) else HEALTH_SECONDS)
            except ProgramFailedError as error:
                await self._give_up(str(error))
                return
            self._suspected.clear()

    async def _give_up(self, reason: str) -> None:
        """Mark it as lost and end its process, even if sessions still use it."""
        self._lose(reason)
        await self._program.stop()

    def _lose(self, reason: str) -> None:
        if self.lost is not None:
            return
        how = f"is lost: {reason}"
        if self._program.exit_code is not None:
            how = describe_exit(self._program.exit_code)
            if self._program.stderr_tail:
                how += f": {self._program.stderr_tail[-500:]}"
        self.lost = ProgramFailedError(f"OpenCode (process {self.pid}) {how}", provider="opencode")
        self.router.send_to_all(self.lost)


@asynccontextmanager
async def serving(plan: ServerPlan) -> AsyncGenerator[Server]:
    """Start a server; leaving the context ends it and all its processes.

    Raise ProgramFailedError.
    """
    mark = new_mark()
    password = secrets.token_urlsafe(32)
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
        async with after_first_start(plan.program, env):
            program = await stack.enter_async_context(_running(plan, env))
            seconds = start_seconds()
            try:
                async with asyncio.timeout(seconds):  # until its events can be read
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
    # Not in a project's folder: sessions of other projects must not get its settings.
    arguments = ("serve", "--hostname", "127.0.0.1", "--port", "0", *plan.args)
    try:
        async with running(*plan.launcher, plan.program, *arguments, cwd="/", env=env, stdin=False) as program:
            yield program
    except ExecError as error:
        raise ProgramFailedError(str(error), provider="opencode") from error


@asynccontextmanager
async def _swept(program: Program, mark: dict[str, str]) -> AsyncGenerator[None]:
    """End the server's processes as soon as it dies, not only after the last session."""

    async def sweep() -> None:
        await program.wait()
        await end_marked(mark)

    sweeping = asyncio.create_task(sweep())
    try:
        yield
    finally:
        await cancel_all(sweeping)


async def _address(program: Program) -> str:
    """Return the address that it prints; it chooses the port itself.

    Raise ProgramFailedError.
    """
    output: list[bytes] = []
    try:
        while line := await program.stdout.readline():
            if found := _LISTENING.search(line):
                return _on_loopback(found[1].decode())
            output.append(line)
        await program.wait()
    except ValueError as error:  # an overlong line
        raise ProgramFailedError(f"OpenCode did not start: {error}", provider="opencode") from error
    text = program.stderr_tail or b"".join(output).decode("utf-8", "replace").strip()
    raise ProgramFailedError(
        f"OpenCode did not start (exit code {program.exit_code}): {text[-800:]}", provider="opencode"
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
    """Return whether a signal has stopped it, so that it cannot answer."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


@dataclass
class _Entry:
    plan: ServerPlan  # keeps the tools alive: their identity is part of the key
    shared: Shared[Server]
    users: int = 0


# Per event loop: a server that one loop started cannot be awaited in another.
_ENTRIES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Entry]] = WeakKeyDictionary()


@asynccontextmanager
async def leased(plan: ServerPlan) -> AsyncGenerator[Shared[Server]]:
    """Yield the server of that plan.

    The first use starts it, the last session ends it.
    """
    entries = _ENTRIES.setdefault(asyncio.get_running_loop(), {})
    entry = entries.setdefault(plan.key, _Entry(plan, Shared(lambda: serving(plan))))
    entry.users += 1
    try:
        yield entry.shared
    finally:
        entry.users -= 1
        if entry.users == 0:
            del entries[plan.key]


@asynccontextmanager
async def after_first_start(program: str, env: Mapping[str, str]) -> AsyncGenerator[None]:
    """Wait while another process or task starts the first server of a program.

    The context is the start of a server. The lock is on the folder of the database, so
    that no file is left, and it ends with this process.
    """
    folder = _data_folder(env)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.stat(program)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # OpenCode reports why it cannot be used
        yield
        return
    key = (file.st_ino, file.st_mtime_ns, folder)
    try:
        while key not in _STARTED and not _take(lock):  # noqa: ASYNC110  # another process has it
            await asyncio.sleep(_PAUSE)
        yield
        _STARTED.add(key)
    finally:
        os.close(lock)


def _data_folder(env: Mapping[str, str]) -> Path:
    data = env.get("XDG_DATA_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(data) / "opencode"


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
