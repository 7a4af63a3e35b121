"""The SDK's way to the program: over a child of ours, and for the control protocol only.

What the agent does is not passed to the SDK: it is read here and handed on at once. So nothing waits in the SDK's
buffers, and nothing that its parser does not know is lost.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec
from claude_agent_sdk import Transport

from atomic.processes import ExecError, Program, end_marked, new_mark, running
from atomic.providers.claude import wire
from atomic.providers.errors import ProgramFailedError

LEAVING = 2.0  # seconds to write its session and go, when nothing is said to it any more
_LIMIT = "is longer than 64 MB"


class ProgramTransport(Transport):
    """Runs the program from `connect` to `close`. `hear` gets its messages, `lost` is told once if it ends itself."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str],
        hear: Callable[[wire.Message], None],
        lost: Callable[[ProgramFailedError], None],
    ) -> None:
        self._argv, self._cwd, self._env = argv, cwd, env
        self._hear, self._lost = hear, lost
        self._mark = new_mark()
        self._stack = AsyncExitStack()
        self._program: Program | None = None
        self._failure: ProgramFailedError | None = None

    @property
    def usable(self) -> bool:
        """Whether it runs and can be understood."""
        if self._program is None or self._failure is not None:
            return False
        self._program.look()  # it may have been killed just now
        return self._program.exit_code is None

    # what the SDK asks for ------------------------------------------------------------------------------------

    async def connect(self) -> None:
        try:
            self._program = await self._stack.enter_async_context(
                running(*self._argv, cwd=self._cwd, env={**self._env, **self._mark})
            )
        except ExecError as error:
            raise ProgramFailedError(str(error), provider="claude") from error

    async def write(self, data: str) -> None:
        if self._failure is not None:
            raise self._failure
        if self._program is None or self._program.stdin is None:
            raise ProgramFailedError("Claude Code does not run", provider="claude")
        try:
            self._program.stdin.write(data.encode("utf-8", "replace"))  # half a character cannot be sent
            await self._program.stdin.drain()
        except (OSError, RuntimeError) as error:  # it has gone, or is just being ended
            failure = await self._ended(self._program)
            self._fail(failure)
            raise failure from error

    async def read_messages(self) -> AsyncGenerator[dict[str, Any]]:
        """The control messages; all others are heard here. Raises ProgramFailedError at the end of the program."""
        assert self._program is not None, "connect() comes first"
        try:
            while (line := await self._program.stdout.readline()).endswith(b"\n"):  # half a line is its end
                line = wire.whole(line)
                kind = wire.kind_of(line)
                if kind.startswith("control_"):
                    yield msgspec.json.decode(line)
                else:
                    self._hear(wire.read(kind, line))
            raise await self._ended(self._program)
        except ProgramFailedError as error:
            self._fail(error)
            raise
        except Exception as error:  # whatever it said that cannot be read: it ends the turn, never Atomic
            reason = _LIMIT if isinstance(error, ValueError) and "limit" in str(error) else f"cannot be read: {error}"
            failure = ProgramFailedError(f"Claude Code said something that {reason}", provider="claude")
            self._fail(failure)
            raise failure from error

    async def close(self) -> None:
        """Let it go, then make it go. The SDK bounds nothing here; each wait has its own bound."""
        if self.usable and self._program is not None and self._program.stdin is not None:
            self._program.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVING):
                    await self._program.wait()
        await self._stack.aclose()
        await end_marked(self._mark)
        self._program = None

    def is_ready(self) -> bool:
        return self.usable

    async def end_input(self) -> None:
        if self._program is not None and self._program.stdin is not None:
            self._program.stdin.close()

    # what only we ask for -------------------------------------------------------------------------------------

    async def kill(self, *, grace: float) -> None:
        """End it and all that it started, now; `close` cleans up."""
        if self._program is not None:
            await self._program.stop(grace=grace)
            await end_marked(self._mark)

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
