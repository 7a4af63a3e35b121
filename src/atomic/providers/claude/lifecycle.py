"""The life of a session's program: start, resume after an end, and end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.claude.environment import PROVIDER
from atomic.providers.claude.launch import Launch, Origin
from atomic.providers.claude.program import ClaudeProgram
from atomic.providers.claude.questions import MayUse
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError

Schema = Mapping[str, Any]

_NOT_FOUND = "No conversation found"


class Lifecycle:
    """Runs one program at a time, for one conversation."""

    def __init__(self, launch: Launch, translator: Translator, may_use: MayUse) -> None:
        options = launch.options
        if options.resume is not None and not options.fork:
            self._origin = Origin(options.resume, known=True)
        else:
            self._origin = Origin(str(uuid.uuid4()), fork_of=options.resume)
        self._launch = launch
        self._translator = translator
        self._may_use = may_use
        self._model = options.model
        self._schema: Schema | None = None  # of the running program
        self._program: ClaudeProgram | None = None
        self._current: ClaudeProgram | None = None  # it runs or is starting
        self._stack = AsyncExitStack()  # ends the program
        self._changing = asyncio.Lock()  # one start or end at a time
        # A new conversation was started. If the program was killed, it may not be on
        # disk yet.
        self._may_be_unwritten = False
        self._is_over = False

    @property
    def id(self) -> str:
        """Return the id of the conversation; after `/clear` the new one."""
        return self._translator.session_id or self._origin.id

    @property
    def program(self) -> ClaudeProgram:
        """Return the running program. Raise ProgramFailedError if none runs."""
        if self._program is None:
            raise ProgramFailedError("Claude Code is not running", provider=PROVIDER)
        return self._program

    def note_prompt(self) -> None:
        """Note that a prompt is sent: from now on the program stores the conversation."""
        if not self._origin.known:
            self._origin = msgspec.structs.replace(self._origin, known=True)
            self._may_be_unwritten = True

    async def set_model(self, id: str) -> None:
        """Use another model, also in a program that starts later."""
        if self._program is not None and self._program.usable:
            await self._program.set_model(id)
        self._model = id

    async def get_ready(self, schema: Schema | None) -> None:
        """Make sure it runs with this schema, which needs a new start.

        Raise ProgramFailedError.
        """
        async with self._changing:
            if self._program is not None and (not self._program.usable or schema != self._schema):
                await self._end()
            if self._program is None:
                await self._start(schema)

    async def ensure_running(self) -> None:
        """Make sure it runs, with any schema. Raise ProgramFailedError."""
        await self.get_ready(self._schema)

    async def kill(self, *, grace: float) -> None:
        """Kill it and all its children; the next use starts it again."""
        if self._current is not None:
            await self._current.kill(grace=grace)

    async def clear_away(self) -> None:
        """Clean up after a program that has died."""
        async with self._changing:
            if self._program is not None and not self._program.usable:
                await self._end()

    async def end(self) -> None:
        """End it permanently, even if its start hangs."""
        self._is_over = True
        if self._program is None:
            await self.kill(grace=0)
        async with self._changing:
            await self._end()

    async def _start(self, schema: Schema | None) -> None:
        """Start it; if the conversation may not be on disk, try to resume it and to
        create it.
        """
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
            except ProgramFailedError as second:  # one error only reports that the other way was right
                raise (second if _NOT_FOUND in str(error) else error) from None
            self._origin = other

    async def _start_at(self, origin: Origin, schema: Schema | None) -> None:
        launch = self._launch
        self._translator.program_started()
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=temporary_prefix("claude"))))
            argv = launch.command_line(origin, folder, model=self._model, schema=schema)
            self._current = ClaudeProgram(argv, launch, self._translator, self._may_use)
            await stack.enter_async_context(self._current.running())
            self._program = self._current
            self._schema = schema
            self._stack = stack.pop_all()

    async def _end(self) -> None:
        self._program = None
        self._current = None
        stack = self._stack
        self._stack = AsyncExitStack()
        await stack.aclose()
