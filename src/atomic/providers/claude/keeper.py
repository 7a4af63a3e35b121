"""Keeps a session's program running: starts it, takes it up again where it ended, and ends it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from atomic.processes.leftovers import temporary_prefix
from atomic.providers.claude.command import Origin
from atomic.providers.claude.environ import PROVIDER
from atomic.providers.claude.launch import Launch
from atomic.providers.claude.program import ClaudeProgram
from atomic.providers.claude.questions import MayUse
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError

Schema = Mapping[str, Any]

_UNWRITTEN = "No conversation found"


class Keeper:
    """One program at a time, for one conversation."""

    def __init__(self, launch: Launch, translator: Translator, may_use: MayUse) -> None:
        options = launch.options
        if options.resume is not None and not options.fork:
            self._origin = Origin(options.resume, known=True)
        else:
            self._origin = Origin(str(uuid.uuid4()), fork_of=options.resume)
        self._launch, self._translator, self._may_use = launch, translator, may_use
        self._model = options.model
        self._schema: Schema | None = None  # that it was started with
        self._program: ClaudeProgram | None = None
        self._begun: ClaudeProgram | None = None  # what runs, or is being started
        self._stack = AsyncExitStack()  # what runs
        self._changing = asyncio.Lock()  # one start or end at a time
        self._may_be_unwritten = False  # a conversation of our own was begun, and perhaps killed at once
        self._is_over = False

    @property
    def id(self) -> str:
        """The conversation's; after `/clear` that of the new one."""
        return self._translator.session_id or self._origin.id

    @property
    def program(self) -> ClaudeProgram:
        """What runs. Raises ProgramFailedError if nothing does."""
        if self._program is None:
            raise ProgramFailedError("Claude Code does not run", provider=PROVIDER)
        return self._program

    def asked(self) -> None:
        """Something was said: from now on the program has it on its disk, or nearly."""
        if not self._origin.known:
            self._origin, self._may_be_unwritten = msgspec.structs.replace(self._origin, known=True), True

    async def set_model(self, id: str) -> None:
        """Use another one, also in a program that is started later."""
        if self._program is not None and self._program.usable:
            await self._program.set_model(id)
        self._model = id

    async def get_ready(self, schema: Schema | None) -> None:
        """Have it running, with that schema: it can be told one only when it starts. Raises ProgramFailedError."""
        async with self._changing:
            if self._program is not None and (not self._program.usable or schema != self._schema):
                await self._end()
            if self._program is None:
                await self._start(schema)

    async def have_any(self) -> None:
        """Have it running, with whatever schema. Raises ProgramFailedError."""
        await self.get_ready(self._schema)

    async def kill(self, *, grace: float) -> None:
        """End it now, with all that it started; the next to need it starts it again."""
        if self._begun is not None:
            await self._begun.kill(grace=grace)

    async def clear_away(self) -> None:
        """Clean up after one that has died."""
        async with self._changing:
            if self._program is not None and not self._program.usable:
                await self._end()

    async def end(self) -> None:
        """End it for good, even in the middle of a start that hangs."""
        self._is_over = True
        if self._program is None:
            await self.kill(grace=0)
        async with self._changing:
            await self._end()

    async def _start(self, schema: Schema | None) -> None:
        """Start it. Whether it had written anything down before it was killed, only it knows: try both ways."""
        if self.id != self._origin.id:
            self._origin = Origin(self.id, known=True)
        try:
            await self._start_at(self._origin, schema)
        except ProgramFailedError as error:
            if not self._may_be_unwritten or self._is_over:
                raise
            other = msgspec.structs.replace(self._origin, known=not self._origin.known)
            try:
                await self._start_at(other, schema)
            except ProgramFailedError as second:  # one of the two is about the other way; the cause is in the other
                raise (second if _UNWRITTEN in str(error) else error) from None
            self._origin = other

    async def _start_at(self, origin: Origin, schema: Schema | None) -> None:
        launch = self._launch
        self._translator.program_started()
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=temporary_prefix("claude"))))
            argv = launch.command_line(origin, folder, model=self._model, schema=schema)
            self._begun = ClaudeProgram(argv, launch, self._translator, self._may_use)
            await stack.enter_async_context(self._begun.running())
            self._program, self._schema, self._stack = self._begun, schema, stack.pop_all()

    async def _end(self) -> None:
        self._program = self._begun = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
