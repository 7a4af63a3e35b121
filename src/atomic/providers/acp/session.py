"""A conversation with an agent, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.acp.launch import Launch
from atomic.providers.acp.lifecycle import Lifecycle, current_model, models_of
from atomic.providers.acp.limits import find_limit
from atomic.providers.acp.messages import TurnDone
from atomic.providers.acp.program import RefusedError
from atomic.providers.acp.questions import Client
from atomic.providers.acp.translate import Meters, Translator
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.errors import ProviderError, UnsupportedError
from atomic.providers.events import Compacted, EndReason, TurnEnded, UsageReported
from atomic.providers.session import LiveSession, undisturbed
from atomic.providers.turn import Turn

_GRACE = 0.1  # seconds before SIGKILL; the program was asked to stop before
_REASONS = {
    "end_turn": EndReason.DONE,
    "cancelled": EndReason.INTERRUPTED,
    "max_tokens": EndReason.MAX_TURNS,
    "max_turn_requests": EndReason.MAX_TURNS,
    "refusal": EndReason.REFUSED,
}


class AcpSession(LiveSession):
    """A session of an agent that implements the protocol."""

    def __init__(self, launch: Launch) -> None:
        agent = launch.agent
        options = launch.options
        super().__init__(agent.provider, agent.known.can, options)
        self._has_compact_focus = agent.known.has_compact_focus
        self._meters = Meters(is_new=options.resume is None)
        translator = self._translator = Translator(self._meters, has_own_tools=bool(options.custom_tools))
        self._client = Client(
            options.ask, allowed=translator.allowed, asked=lambda question: translator.emit([question])
        )
        self._lifecycle = Lifecycle(launch, client=self._client, translator=translator, left_out=self.notices.append)
        self._is_sent = False  # the prompt of this turn
        self._is_instructed = options.system_prompt is None

    @property
    def id(self) -> str:
        """Return the agent's id of the session."""
        return self._lifecycle.id

    # Turns

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        """Start the program if needed, send the prompt and evaluate the answer."""
        try:
            await self._lifecycle.get_ready()
            if not turn.over:
                await self._send_prompt(prompt, turn)
        finally:
            self._is_sent = False
            self._client.give_up()
            self._translator.finish("interrupted")
            if not self._lifecycle.is_usable:
                await undisturbed(self._lifecycle.leave())

    async def stop_turn(self, turn: Turn) -> None:
        """Ask the agent to stop; before the prompt is sent, just end the turn."""
        if not self._is_sent:
            turn.end(EndReason.INTERRUPTED)
            return
        self._client.give_up()  # an agent may wait for an answer first
        await self._lifecycle.program.cancel(self.id)

    async def break_off(self) -> None:
        """Kill the program and its group; the next turn resumes the conversation."""
        if self._is_sent:
            await self._lifecycle.program.kill(grace=_GRACE)

    async def _send_prompt(self, prompt: str, turn: Turn) -> None:
        text = without_surrogates(prompt)
        first = text.strip().partition("\n")[0].partition(" ")[0]
        command = first[1:] if first.startswith("/") else ""
        instructs = not self._is_instructed and not command
        if instructs:
            # The prompt comes first: its first line may describe it to a program. The
            # protocol can only send a system prompt with it.
            system_prompt = without_surrogates(self.options.system_prompt or "")
            text = f"{text}\n\n<system_prompt>\n{system_prompt}\n</system_prompt>"
        self._translator.begin(turn)
        self._is_sent = True
        try:
            response = await self._lifecycle.program.prompt(self.id, [text])
        except RefusedError as error:
            limit = find_limit(str(error))
            if limit is not None:
                turn.emit(limit)
            self._translator.finish("interrupted")
            turn.end(EndReason.ERROR, error=str(error))
            return
        self._lifecycle.is_empty = False  # an agent may store a session with its first answer
        self._is_instructed = self._is_instructed or instructs
        self._judge(turn, response, is_compaction=command == "compact")

    def _judge(self, turn: Turn, response: TurnDone, *, is_compaction: bool) -> None:
        """End the turn with the reason that the agent reports."""
        reason = _REASONS[response.stop_reason]
        if (usage := self._meters.turn(response.usage)) is not None:
            turn.emit(UsageReported(usage))
        if reason is EndReason.DONE and turn.ending and not self._translator.has_answered:
            reason = EndReason.INTERRUPTED  # an agent that waits for a retry reports success
        if reason is EndReason.DONE and is_compaction:
            self._is_instructed = self.options.system_prompt is None  # the summary may have dropped the system prompt
            turn.emit(Compacted())
        self._translator.finish("interrupted")
        turn.end(reason)

    # Other requests

    async def context(self) -> ContextUsage:
        """Return how full the context was after the last turn; zeros mean unknown."""
        return msgspec.structs.replace(self._meters.context, model=current_model(self._translator.options))

    async def compact(self, focus: str = "") -> None:
        """Summarise the context.

        Raise UnsupportedError, or ProviderError if it fails.
        """
        if not self.capabilities.compact:
            await super().compact(focus)
        if focus and not self._has_compact_focus:
            raise UnsupportedError(
                f"{self.provider} does not accept a focus for a summary", provider=self.provider, remedy="omit it"
            )
        async for event in self.send(f"/compact {focus}".strip()):
            if isinstance(event, TurnEnded) and event.reason is not EndReason.DONE:
                reason = event.error or event.reason
                raise ProviderError(f"The context could not be summarised: {reason}", provider=self.provider)

    async def set_model(self, id: str) -> None:
        """Use another model from the next turn on. Raise ProviderError."""
        await self._lifecycle.choose_model(id)

    def models(self) -> list[ModelInfo]:
        """Return the available models."""
        return models_of(self._translator.options)

    # Life

    async def open(self) -> None:
        """Start the program and open the session. Raise ProviderError."""
        await self._lifecycle.get_ready()
        can = self._lifecycle.program.can
        sessions = can.session_capabilities
        self.capabilities = msgspec.structs.replace(
            self.capabilities,
            resume=can.load_session or sessions.resume is not None,
            fork=sessions.fork is not None,
            custom_tools=can.mcp_capabilities.http,
            models=bool(self.models()),
        )

    async def close(self) -> None:
        """End the turn and the program."""
        await self.interrupt()
        await self._lifecycle.leave()


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON cannot represent."""
    return text.encode(errors="replace").decode()
