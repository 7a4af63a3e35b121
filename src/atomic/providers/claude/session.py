"""A conversation with Claude Code. The program may end and begin again under it: the conversation goes on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from atomic.providers.base import Capabilities, ContextUsage, ModelInfo
from atomic.providers.claude.environ import PROVIDER
from atomic.providers.claude.health import login_remedy
from atomic.providers.claude.keeper import Keeper
from atomic.providers.claude.launch import Launch
from atomic.providers.claude.messages import MessageReader
from atomic.providers.claude.questions import permission
from atomic.providers.claude.servers import name_of
from atomic.providers.claude.translate import Translator
from atomic.providers.errors import ProgramFailedError, ProviderError
from atomic.providers.events import AgentEvent, Compacted, EndReason, Notice, QuestionAsked, TurnEnded
from atomic.providers.live import POLITE, LiveSession, undisturbed
from atomic.providers.turns import Turn

_NOTHING = "No messages to compact"  # says the program
_GRACE = 0.1  # for a program that is broken off; it was asked before


class ClaudeSession(LiveSession):
    """A program that is started when it is needed, and again when it has gone. `greet` gives what to say first."""

    def __init__(self, launch: Launch, capabilities: Capabilities, *, greet: Callable[[], str | None]) -> None:
        super().__init__(PROVIDER, capabilities, launch.options)
        self._greet = greet
        self._translator = Translator(MessageReader(name_of), login=login_remedy(launch.program, launch.env))
        self._keeper = Keeper(launch, self._translator, permission(launch.options.ask, self._tell_question))
        self._is_asked = False  # the prompt of this turn was sent

    @property
    def id(self) -> str:
        """The session's id; after `/clear` that of the new one."""
        return self._keeper.id

    async def begin(self) -> None:
        """Make sure that a session which is to be resumed is there. Raises ProgramFailedError."""
        if self.options.resume is not None:
            await undisturbed(self._keeper.get_ready(None))

    async def close(self) -> None:
        """End the program."""
        await self._keeper.end()

    # a turn ---------------------------------------------------------------------------------------------------

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Start the program if need be, ask, and wait for the end, which the translator knows."""
        if greeting := self._greet():
            turn.tell(Notice(greeting))
        try:
            is_heard = False
            while not is_heard:  # at most twice: one that was just started hears it, or ends the turn
                # A start that is cut off in the middle leaves nobody who knows what runs: it goes on to its end.
                await undisturbed(self._keeper.get_ready(schema))
                is_heard = turn.over or await self._put_prompt(prompt, turn)
        finally:
            self._is_asked = False
            self._translator.finish()
            await undisturbed(self._keeper.clear_away())

    async def stop_turn(self, turn: Turn) -> None:
        """Ask the program to stop; before it was asked anything there is nothing to stop."""
        if self._is_asked:
            await self._keeper.program.interrupt()
        else:
            turn.end(EndReason.INTERRUPTED)

    async def break_off(self) -> None:
        """Kill the program and all that it started; the next turn takes the conversation up again."""
        await self._keeper.kill(grace=_GRACE)

    async def _put_prompt(self, prompt: str, turn: Turn) -> bool:
        """Ask, and wait for the end; False if the program had died before it could hear it."""
        id = str(uuid.uuid4())
        reading = self._translator.begin(turn, id)
        self._is_asked = True
        self._keeper.asked()
        try:
            await self._keeper.program.ask(prompt, id)
        except ProgramFailedError:
            if not reading.is_unheard:
                raise
        await _first_of(turn.wait_over(), reading.stop.wait())
        if reading.is_unheard:
            self._is_asked = False
            return False
        if not turn.over:
            await self._give_up(turn)
        return True

    async def _give_up(self, turn: Turn) -> None:
        """It would try against a limit for ever: end it as an interrupt would."""
        await self._keeper.program.interrupt()
        await turn.wait_over(POLITE)
        if not turn.over:
            await self.break_off()
            turn.end(EndReason.LIMIT)

    def _tell_question(self, question: QuestionAsked, task: str | None) -> None:
        self._translator.tell(msgspec.structs.replace(question, agent=self._translator.agent_of(task)))

    # what else can be asked -----------------------------------------------------------------------------------

    async def context(self) -> ContextUsage:
        """How full the context is. Raises ProgramFailedError."""
        await undisturbed(self._keeper.have_any())
        return await self._keeper.program.context()

    async def compact(self, focus: str = "") -> None:
        """Summarise the context; one that is empty stays as it is. Raises ProviderError if that fails."""
        events: list[AgentEvent] = [event async for event in self.send(f"/compact {focus}".strip())]
        end = events[-1]
        assert isinstance(end, TurnEnded)
        if not any(isinstance(event, Compacted) for event in events) and _NOTHING not in end.text:
            why = end.error or end.text or end.reason
            raise ProviderError(f"The context could not be summarised: {why}", provider=PROVIDER)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises ProgramFailedError."""
        await self._keeper.set_model(id)

    async def models(self) -> Sequence[ModelInfo]:
        """The models that may be chosen. Raises ProgramFailedError."""
        await undisturbed(self._keeper.have_any())
        return self._keeper.program.models()


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
