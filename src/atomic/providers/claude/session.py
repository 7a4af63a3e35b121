"""A conversation with Claude Code, and the life of its program: start, resume after an
end, and end.

The conversation continues if the program ends and starts again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.base import Capabilities, ContextUsage, ModelInfo
from atomic.providers.claude.environment import PROVIDER
from atomic.providers.claude.health import login_remedy
from atomic.providers.claude.launch import Launch, Origin
from atomic.providers.claude.program import ClaudeProgram
from atomic.providers.claude.questions import MayUse, permission
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import AgentEvent, Compacted, EndReason, Notice, QuestionAsked, TurnEnded
from atomic.providers.session import STOP_SECONDS, LiveSession, undisturbed
from atomic.providers.turn import Turn

Schema = Mapping[str, Any]

_NOT_FOUND = "No conversation found"  # the program's own text
_NOTHING_TO_COMPACT = "No messages to compact"
_GRACE = 0.1  # seconds before SIGKILL; the program was asked to stop before


class ClaudeSession(LiveSession):
    """A session that starts its program when needed. `notice` returns a notice for the
    first turn.
    """

    def __init__(self, launch: Launch, capabilities: Capabilities, *, notice: Callable[[], str | None]) -> None:
        super().__init__(PROVIDER, capabilities, launch.options)
        self._notice = notice
        self._translator = Translator(login=login_remedy(launch.program, launch.env))
        self._lifecycle = Lifecycle(launch, self._translator, permission(launch.options.ask, self._emit_question))
        self._is_sent = False  # the prompt of this turn

    @property
    def id(self) -> str:
        """Return the session's id; after `/clear` the id of the new session."""
        return self._lifecycle.id

    async def begin(self) -> None:
        """Check that a session to be resumed exists. Raise ProgramFailedError."""
        if self.options.resume is not None:
            await undisturbed(self._lifecycle.get_ready(None))

    async def close(self) -> None:
        """End the program."""
        await self._lifecycle.end()

    # Turns

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Start the program if needed, send the prompt and wait for the end of the
        turn.
        """
        if notice := self._notice():
            turn.emit(Notice(notice))
        try:
            is_received = False
            while not is_received:  # at most twice: a new program receives it or ends the turn
                # A start that is cancelled halfway would leave processes that are not
                # tracked.
                await undisturbed(self._lifecycle.get_ready(schema))
                is_received = turn.over or await self._send_prompt(prompt, turn)
        finally:
            self._is_sent = False
            self._translator.finish()
            await undisturbed(self._lifecycle.clear_away())

    async def stop_turn(self, turn: Turn) -> None:
        """Ask the program to stop; before the prompt is sent, just end the turn."""
        if self._is_sent:
            await self._lifecycle.program.interrupt()
        else:
            turn.end(EndReason.INTERRUPTED)

    async def break_off(self) -> None:
        """Kill the program and its children; the next turn resumes the conversation."""
        await self._lifecycle.kill(grace=_GRACE)

    async def _send_prompt(self, prompt: str, turn: Turn) -> bool:
        """Send the prompt and wait for the end; return False if the program was already
        dead.
        """
        id = str(uuid.uuid4())
        reading = self._translator.begin(turn, id)
        self._is_sent = True
        self._lifecycle.note_prompt()
        try:
            await self._lifecycle.program.send(prompt, id)
        except ProgramFailedError:
            if not reading.is_unreceived:
                raise
        await _first_of(turn.wait_over(), reading.stop.wait())
        if reading.is_unreceived:
            self._is_sent = False
            return False
        if not turn.over:
            await self._give_up(turn)
        return True

    async def _give_up(self, turn: Turn) -> None:
        """End a turn that would retry against a limit endlessly."""
        await self._lifecycle.program.interrupt()
        await turn.wait_over(STOP_SECONDS)
        if not turn.over:
            await self.break_off()
            turn.end(EndReason.LIMIT)

    def _emit_question(self, question: QuestionAsked, task: str | None) -> None:
        self._translator.emit(msgspec.structs.replace(question, agent=self._translator.agent_of(task)))

    # Other requests

    async def context(self) -> ContextUsage:
        """Return how full the context is. Raise ProgramFailedError."""
        await undisturbed(self._lifecycle.ensure_running())
        return await self._lifecycle.program.context()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; an empty one stays as it is. Raise ProviderError."""
        events: list[AgentEvent] = [event async for event in self.send(f"/compact {focus}".strip())]
        end = events[-1]
        assert isinstance(end, TurnEnded)
        if not any(isinstance(event, Compacted) for event in events) and _NOTHING_TO_COMPACT not in end.text:
            reason = end.error or end.text or end.reason
            raise ProviderError(f"The context could not be summarised: {reason}", provider=PROVIDER)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raise ProgramFailedError."""
        await self._lifecycle.set_model(id)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the available models. Raise ProgramFailedError."""
        await undisturbed(self._lifecycle.ensure_running())
        return self._lifecycle.program.models()


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


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
