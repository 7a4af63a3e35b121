"""A conversation with an agent, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.acp.client import Client
from atomic.providers.acp.errors import RefusedError
from atomic.providers.acp.keeper import Keeper
from atomic.providers.acp.launch import Launch
from atomic.providers.acp.limits import limit_in
from atomic.providers.acp.messages import TurnDone
from atomic.providers.acp.meters import Meters
from atomic.providers.acp.options import current_model, models_of
from atomic.providers.acp.patience import Complaints
from atomic.providers.acp.prompts import command_of, is_compaction, no_command, speakable, system_block
from atomic.providers.acp.translate import Translator
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.errors import ProviderError, UnsupportedError
from atomic.providers.events import Compacted, EndReason, LimitReached, TurnEnded, UsageReported
from atomic.providers.live import POLITE, LiveSession, undisturbed
from atomic.providers.turns import Turn

_GRACE = 0.1  # for a program that is broken off; it was asked before
_COMMANDS = 5.0  # seconds that an agent has to tell its commands
_REASONS = {
    "end_turn": EndReason.DONE,
    "cancelled": EndReason.INTERRUPTED,
    "max_tokens": EndReason.MAX_TURNS,
    "max_turn_requests": EndReason.MAX_TURNS,
    "refusal": EndReason.REFUSED,
}


class AcpSession(LiveSession):
    """A session of an agent that speaks the protocol."""

    def __init__(self, launch: Launch) -> None:
        agent, options = launch.agent, launch.options
        super().__init__(agent.provider, agent.capabilities, options)
        self._ways, self._env = agent.ways, launch.env
        self._meters = Meters(adds_up=agent.ways.usage_adds_up, is_new=options.resume is None)
        translator = self._translator = Translator(agent.ways, self._meters, has_own_tools=bool(options.custom_tools))
        self._complaints = Complaints(worked=lambda: translator.worked, moved=lambda: translator.moved)
        self._client = Client(
            options.ask, allowed=translator.allowed, asked=lambda question: translator.tell([question])
        )
        self._keeper = Keeper(
            launch,
            client=self._client,
            translator=translator,
            complaints=self._complaints,
            left_out=self.notices.append,
        )
        self._is_asked = False  # the prompt of this turn was sent
        self._is_instructed = options.system_prompt is None

    @property
    def id(self) -> str:
        """The agent's own id of the session."""
        return self._keeper.id

    # a turn ---------------------------------------------------------------------------------------------------

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Start the program if need be, ask, and judge its answer."""
        try:
            await self._keeper.get_ready()
            if not turn.over:
                await self._ask(prompt, turn)
        finally:
            self._is_asked = False
            self._client.give_up()
            self._translator.finish("interrupted")
            if not self._keeper.is_usable:
                await undisturbed(self._keeper.leave())

    async def stop_turn(self, turn: Turn) -> None:
        """Ask the agent to stop; before it was asked anything there is nothing to stop."""
        if not self._is_asked:
            turn.end(EndReason.INTERRUPTED)
            return
        self._client.give_up()  # an agent may wait for an answer before it hears anything else
        await self._keeper.program.cancel(self.id)

    async def break_off(self) -> None:
        """End the program and its group; the next turn takes the conversation up again."""
        if self._is_asked:
            await self._keeper.program.kill(grace=_GRACE)

    async def _ask(self, prompt: str, turn: Turn) -> None:
        text, instructs = await self._spoken(prompt)
        if turn.over:
            return
        self._translator.begin(turn)
        self._complaints.begin()
        self._is_asked = True
        answer = asyncio.create_task(self._keeper.program.prompt(self.id, [text]))
        given_up = asyncio.create_task(self._complaints.run_out())
        try:
            await asyncio.wait({answer, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await self._give_up(turn, answer, why=given_up.result())
            else:
                response = answer.result()
                self._keeper.is_empty = False  # before its first answer an agent may not have kept the session
                self._is_instructed = self._is_instructed or instructs
                self._judge(turn, response, prompt)
        except RefusedError as error:
            self._fail(turn, str(error))
        finally:
            await _end(answer, given_up)

    async def _spoken(self, prompt: str) -> tuple[str, bool]:
        """The prompt as the agent takes it, and whether the caller's instructions stand behind it, for the first time.

        The prompt comes first: its first line may tell a program what it is about.
        """
        prompt = speakable(prompt)
        command = command_of(prompt)
        if command and self._ways.unknown_commands_vanish and not await self._is_known(command):
            prompt, command = no_command(prompt), ""
        if self._is_instructed or command or self.options.system_prompt is None:
            return prompt, False
        return f"{prompt}\n\n{system_block(speakable(self.options.system_prompt))}", True

    async def _is_known(self, command: str) -> bool:
        if command == "compact" and self._ways.compact:
            return True
        try:
            async with asyncio.timeout(_COMMANDS):
                return command in await self._translator.known_commands()
        except TimeoutError:
            return False

    def _judge(self, turn: Turn, response: TurnDone, prompt: str) -> None:
        """End the turn as the agent says that it ended."""
        reason = _REASONS[response.stop_reason]
        if (usage := self._meters.turn(response.usage)) is not None:
            turn.tell(UsageReported(usage))
        if reason is EndReason.DONE and self._translator.error is not None:
            self._fail(turn, self._translator.error)
            return
        if reason is EndReason.DONE and turn.ending and not self._translator.has_spoken:
            reason = EndReason.INTERRUPTED  # one that waits to try again says that it is done
        if reason is EndReason.DONE and is_compaction(prompt):
            self._is_instructed = self.options.system_prompt is None  # a summary may have left them out
            turn.tell(Compacted())
        self._translator.finish("interrupted")
        turn.end(reason)

    def _fail(self, turn: Turn, why: str) -> None:
        if (limit := limit_in(why)) is not None:
            known = limit_in(self._complaints.latest())  # the log may say until when
            reset_at = limit.reset_at or (known.reset_at if known is not None else None)
            turn.tell(LimitReached(reset_at, limit.message))
        self._translator.finish("interrupted")
        turn.end(EndReason.ERROR, error=why)

    async def _give_up(self, turn: Turn, answer: asyncio.Task[TurnDone], *, why: str) -> None:
        """It would try for ever: stop it, as an interrupt would."""
        await self._keeper.program.cancel(self.id)
        await asyncio.wait({answer}, timeout=POLITE)
        if not answer.done():
            await self._keeper.program.kill(grace=_GRACE)
        self._fail(turn, f"{self.provider}: {why}")

    # what else can be asked -----------------------------------------------------------------------------------

    async def context(self) -> ContextUsage:
        """How full the context was at the end of the last turn; zeros where the agent does not tell."""
        return msgspec.structs.replace(self._meters.context, model=current_model(self._translator.options))

    async def compact(self, focus: str = "") -> None:
        """Summarise the context. Raises UnsupportedError, and ProviderError if it fails."""
        if not self.capabilities.compact:
            await super().compact(focus)
        if focus and not self._ways.compact_focus:
            raise UnsupportedError(
                f"{self.provider} takes no focus for a summary", provider=self.provider, remedy="leave it out"
            )
        async for event in self.send(f"/compact {focus}".strip()):
            if isinstance(event, TurnEnded) and event.reason is not EndReason.DONE:
                why = event.error or event.reason
                raise ProviderError(f"The context could not be summarised: {why}", provider=self.provider)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raises ProviderError."""
        await self._keeper.choose_model(id)

    def models(self) -> list[ModelInfo]:
        """The models that may be chosen; where the agent offers none, the one that the user has set."""
        chosen = self._env.get(self._ways.model_variable, "")
        return models_of(self._translator.options) or ([ModelInfo(chosen, chosen)] if chosen else [])

    # its life -------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the program and open the session. Raises ProviderError."""
        await self._keeper.get_ready()
        can = self._keeper.program.can
        sessions = can.session_capabilities
        self.capabilities = msgspec.structs.replace(
            self.capabilities,
            resume=can.load_session or sessions.resume is not None,
            fork=sessions.fork is not None,
            custom_tools=can.mcp_capabilities.http,
            models=bool(self.models()) or self._ways.any_model,
        )

    async def close(self) -> None:
        """End the turn and the program."""
        await self.interrupt()
        await self._keeper.leave()


async def _end(*tasks: asyncio.Task[Any]) -> None:
    """End what was begun; what it had to say is for nobody any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
