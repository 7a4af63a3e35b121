"""The program as a child of ours: it is told one JSON object a line, and heard line by line."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.claude import wire
from atomic.providers.errors import ProgramFailedError

LEAVING = 2.0  # seconds to write its session and go, when nothing is said to it any more
_LIMIT = "is longer than 64 MB"


class ProgramTransport:
    """Runs the program from `connect` to `close`. `hear` gets each line, `lost` is told once if it ends itself."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        hear: Callable[[str, bytes], None],
        lost: Callable[[ProgramFailedError], None],
    ) -> None:
        self._argv, self._cwd, self._env = argv, cwd, env
        self._hear, self._lost = hear, lost
        self._mark = new_mark()
        self._stack = AsyncExitStack()
        self._program: Program | None = None
        self._reading: asyncio.Task[None] | None = None
        self._failure: ProgramFailedError | None = None

    @property
    def usable(self) -> bool:
        """Whether it runs and can be understood."""
        if self._program is None or self._failure is not None:
            return False
        self._program.look()  # it may have been killed just now
        return self._program.exit_code is None

    async def connect(self) -> None:
        """Start it and listen. Raises ProgramFailedError."""
        try:
            self._program = await self._stack.enter_async_context(
                running(*self._argv, cwd=self._cwd, env={**self._env, **self._mark})
            )
        except ExecError as error:
            raise ProgramFailedError(str(error), provider="claude") from error
        self._reading = asyncio.create_task(self._read(self._program), name="claude-reading")

    async def say(self, message: Mapping[str, Any]) -> None:
        """Tell it something. Raises ProgramFailedError."""
        if self._failure is not None:
            raise self._failure
        if self._program is None or self._program.stdin is None:
            raise ProgramFailedError("Claude Code does not run", provider="claude")
        try:
            self._program.stdin.write(json.dumps(message).encode() + b"\n")  # half a character is escaped in it
            await self._program.stdin.drain()
        except (OSError, RuntimeError) as error:  # it has gone, or is just being ended
            failure = await self._ended(self._program)
            self._fail(failure)
            raise failure from error

    async def kill(self, *, grace: float) -> None:
        """End it and all that it started, now; `close` cleans up."""
        if self._program is not None:
            await self._program.stop(grace=grace)
            await end_marked(self._mark)

    async def close(self) -> None:
        """Let it go, then make it go; each wait has its own bound."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        if self.usable and self._program is not None and self._program.stdin is not None:
            self._program.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING):
                    await self._program.wait()
        await self._stack.aclose()
        await end_marked(self._mark)
        self._program = None

    async def _read(self, program: Program) -> None:
        """Hear it to its end."""
        try:
            while (line := await program.stdout.readline()).endswith(b"\n"):  # half a line is its end
                line = wire.whole(line)
                self._hear(wire.kind_of(line), line)
        except Exception as error:  # whatever it said that cannot be read: it ends the turn, never Atomic
            reason = _LIMIT if isinstance(error, ValueError) and "limit" in str(error) else f"cannot be read: {error}"
            self._fail(ProgramFailedError(f"Claude Code said something that {reason}", provider="claude"))
        else:
            self._fail(await self._ended(program))

    def _fail(self, failure: ProgramFailedError) -> None:
        if self._failure is None:
            self._failure = failure
            self._lost(failure)

    async def _ended(self, program: Program) -> ProgramFailedError:
        """Why it does not talk any more."""
        code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVING):
                code = await program.wait()
        words = program.last_words
        how = "closed its output" if code is None else _how_it_ended(code)
        return ProgramFailedError(f"Claude Code {how}" + (f": {words[-2000:]}" if words else ""), provider="claude")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was ended by signal {-code}"
