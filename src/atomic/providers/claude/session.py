"""A conversation with Claude Code.

It continues if the program ends and starts again.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.base import Capabilities, ContextUsage, ModelInfo
from atomic.providers.claude.environment import PROVIDER
from atomic.providers.claude.health import login_remedy
from atomic.providers.claude.launch import Launch
from atomic.providers.claude.lifecycle import Lifecycle
from atomic.providers.claude.questions import permission
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import AgentEvent, Compacted, EndReason, Notice, QuestionAsked, TurnEnded
from atomic.providers.session import STOP_SECONDS, LiveSession, undisturbed
from atomic.providers.turn import Turn

_NOTHING_TO_COMPACT = "No messages to compact"  # the program's own text
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
