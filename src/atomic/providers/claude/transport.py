"""Runs the program as a child process and exchanges one JSON object per line with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.claude import messages
from atomic.providers.errors import ProgramFailedError
from atomic.providers.programs import describe_exit

EXIT_SECONDS = 2.0  # for writing its session after its input was closed
_TOO_LONG = "is longer than 64 MB"


class ProgramTransport:
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
                reason = _TOO_LONG
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
