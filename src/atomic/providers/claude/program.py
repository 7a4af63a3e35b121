"""One run of the program: its process, the requests to it and its requests to Atomic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.claude import control, messages
from atomic.providers.claude.control import Control, Json, ToolMessage
from atomic.providers.claude.launch import ATOMIC_SERVER, Launch
from atomic.providers.claude.questions import MayUse
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError
from atomic.providers.programs import describe_exit, not_started
from atomic.providers.tool_server import INVALID_REQUEST, failed

T = TypeVar("T")

EXIT_SECONDS = 2.0  # for writing its session after its input was closed


class _Model(msgspec.Struct, frozen=True, rename="camel"):
    value: str
    display_name: str = ""


class _Initialized(msgspec.Struct, frozen=True):
    models: list[_Model] = []


class _Context(msgspec.Struct, frozen=True, rename="camel"):
    total_tokens: float
    max_tokens: float
    model: str = ""


class Transport:
    """Runs the program from `connect` to `close`.

    `on_line` receives each line, `on_lost` is called once if the program ends by
    itself.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        on_line: Callable[[str, bytes], None],
        on_lost: Callable[[ProgramFailedError], None],
    ) -> None:
        self._argv = argv
        self._cwd = cwd
        self._env = env
        self._on_line = on_line
        self._on_lost = on_lost
        self._mark = new_mark()
        self._stack = AsyncExitStack()
        self._program: Program | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: ProgramFailedError | None = None

    @property
    def usable(self) -> bool:
        """Return whether it runs and its output could be read so far."""
        if self._program is None or self._failure is not None:
            return False
        self._program.poll()  # it may just have been killed
        return self._program.exit_code is None

    async def connect(self) -> None:
        """Start it and read its output. Raise ProgramFailedError."""
        try:
            self._program = await self._stack.enter_async_context(
                running(*self._argv, cwd=self._cwd, env={**self._env, **self._mark})
            )
        except ExecError as error:
            raise ProgramFailedError(str(error), provider="claude") from error
        self._reading = asyncio.create_task(self._read(self._program), name="claude-reading")

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raise ProgramFailedError."""
        if self._failure is not None:
            raise self._failure
        if self._program is None or self._program.stdin is None:
            raise ProgramFailedError("Claude Code is not running", provider="claude")
        try:
            self._program.stdin.write(json.dumps(message).encode() + b"\n")  # `dumps` escapes lone surrogates
            await self._program.stdin.drain()
        except (OSError, RuntimeError) as error:  # it has ended or is ending
            failure = await self._ended(self._program)
            self._fail(failure)
            raise failure from error

    async def kill(self, *, grace: float) -> None:
        """Kill it and all its children; `close` cleans up."""
        if self._program is not None:
            await self._program.stop(grace=grace)
            await end_marked(self._mark)

    async def close(self) -> None:
        """Close stdin, wait 2 s, then kill the process group."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self.usable and self._program is not None and self._program.stdin is not None:
            self._program.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await self._program.wait()
        await self._stack.aclose()
        await end_marked(self._mark)
        self._program = None

    async def _read(self, program: Program) -> None:
        """Read its output until it ends."""
        try:
            while (line := await program.stdout.readline()).endswith(b"\n"):  # an incomplete line is the last
                line = messages.without_lone_surrogates(line)
                self._on_line(messages.kind_of(line), line)
        except Exception as error:  # unreadable output ends the turn, never Atomic
            reason = f"cannot be read: {error}"
            if isinstance(error, ValueError) and "limit" in str(error):
                reason = "is longer than 64 MB"
            self._fail(ProgramFailedError(f"Claude Code sent a message that {reason}", provider="claude"))
        else:
            self._fail(await self._ended(program))

    def _fail(self, failure: ProgramFailedError) -> None:
        if self._failure is None:
            self._failure = failure
            self._on_lost(failure)

    async def _ended(self, program: Program) -> ProgramFailedError:
        """Return the error that describes how the program ended."""
        code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                code = await program.wait()
        message = "Claude Code closed its output" if code is None else f"Claude Code {describe_exit(code)}"
        if program.stderr_tail:
            message += f": {program.stderr_tail[-2000:]}"
        return ProgramFailedError(message, provider="claude")


class ClaudeProgram:
    """A running Claude Code."""

    def __init__(self, argv: Sequence[str], launch: Launch, translator: Translator, may_use: MayUse) -> None:
        self._launch = launch
        self._translator = translator
        self._may_use = may_use
        self._transport = Transport(argv, cwd=launch.cwd, env=launch.env, on_line=self._receive, on_lost=self._lost)
        self._control = Control(self._transport.send, self._answer)
        self._initialized: Json = {}  # its answer to `initialize`

    @property
    def usable(self) -> bool:
        return self._transport.usable

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start it, initialize it, and end it with the context.

        Raise ProgramFailedError.
        """
        try:
            await self._transport.connect()
            seconds = self._launch.patience
            try:
                self._initialized = await self._control.request(self._launch.greeting(), seconds=seconds)
            except ProgramFailedError as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise not_started("Claude Code", "claude", seconds) from error
                raise
            yield
        finally:
            await self._control.close()
            await self._transport.close()

    async def kill(self, *, grace: float) -> None:
        """Kill it and all its children, even while it starts."""
        await self._transport.kill(grace=grace)

    # Requests to the program

    async def send(self, prompt: str, id: str) -> None:
        """Send a prompt; the program reports its state under the id. Raise
        ProgramFailedError.
        """
        message = {"role": "user", "content": prompt}
        await self._transport.send({"type": "user", "uuid": id, "parent_tool_use_id": None, "message": message})

    async def interrupt(self) -> None:
        """Stop the current work and drop queued prompts. Raise ProgramFailedError."""
        await self._control.notify({"subtype": "interrupt", "cancel_queued": True})

    async def set_model(self, id: str) -> None:
        """Use another model. Raise ProgramFailedError."""
        await self._control.request({"subtype": "set_model", "model": id})

    async def context(self) -> ContextUsage:
        """Return how full the context is. Raise ProgramFailedError."""
        context = _read(await self._control.request({"subtype": "get_context_usage"}), _Context)
        return ContextUsage(int(context.total_tokens), int(context.max_tokens), context.model)

    def models(self) -> list[ModelInfo]:
        """Return the available models. Raise ProgramFailedError."""
        return [ModelInfo(one.value, one.display_name) for one in _read(self._initialized, _Initialized).models]

    # Messages of the program

    def _receive(self, kind: str, line: bytes) -> None:
        if kind in control.KINDS:
            self._control.receive(kind, line)
        else:
            self._translator.receive(messages.read(kind, line))

    def _lost(self, failure: ProgramFailedError) -> None:
        self._control.fail(failure)
        self._translator.lost(failure)

    async def _answer(self, request: control.Request) -> Json:
        if not isinstance(request, ToolMessage):
            return await self._may_use(request)
        message = request.message
        if request.server_name != ATOMIC_SERVER:
            return {"mcp_response": failed(message.get("id"), INVALID_REQUEST, f"no server {request.server_name}")}
        return {"mcp_response": await self._launch.tools.exchange(message)}


def _read(answer: Mapping[str, Any], type: type[T]) -> T:
    try:
        return msgspec.convert(answer, type)
    except msgspec.ValidationError as error:
        raise ProgramFailedError(
            f"Claude Code sent an answer of an unknown shape: {error}", provider="claude"
        ) from error
