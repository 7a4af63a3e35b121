"""A conversation with an agent, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.acp.client import Client
from atomic.providers.acp.launch import Launch
from atomic.providers.acp.lifecycle import Lifecycle, current_model, models_of
from atomic.providers.acp.limits import RetryMonitor, find_limit
from atomic.providers.acp.messages import TurnDone
from atomic.providers.acp.program import RefusedError
from atomic.providers.acp.translate import Translator
from atomic.providers.acp.usage import Meters
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.errors import ProviderError, UnsupportedError
from atomic.providers.events import Compacted, EndReason, TurnEnded, UsageReported
from atomic.providers.session import STOP_SECONDS, LiveSession, undisturbed
from atomic.providers.turn import Turn, cancel_all

_GRACE = 0.1  # seconds before SIGKILL; the program was asked to stop before
_COMMANDS_SECONDS = 5.0  # for an agent to report its commands
_REASONS = {
    "end_turn": EndReason.DONE,
    "cancelled": EndReason.INTERRUPTED,
    "max_tokens": EndReason.MAX_TURNS,
    "max_turn_requests": EndReason.MAX_TURNS,
    "refusal": EndReason.REFUSED,
}
_COMMAND = "/"
_HIDDEN = "\u2060"  # invisible and not a blank: it hides a command


class AcpSession(LiveSession):
    """A session of an agent that implements the protocol."""

    def __init__(self, launch: Launch) -> None:
        agent = launch.agent
        options = launch.options
        super().__init__(agent.provider, agent.capabilities, options)
        self._quirks = agent.quirks
        self._env = launch.env
        self._meters = Meters(adds_up=agent.quirks.usage_adds_up, is_new=options.resume is None)
        translator = self._translator = Translator(agent.quirks, self._meters, has_own_tools=bool(options.custom_tools))
        self._retries = RetryMonitor(worked=lambda: translator.worked, moved=lambda: translator.moved)
        self._client = Client(
            options.ask, allowed=translator.allowed, asked=lambda question: translator.emit([question])
        )
        self._lifecycle = Lifecycle(
            launch,
            client=self._client,
            translator=translator,
            retries=self._retries,
            left_out=self.notices.append,
        )
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
        text, instructs = await self._prepared(prompt)
        if turn.over:
            return
        self._translator.begin(turn)
        self._retries.begin()
        self._is_sent = True
        answer = asyncio.create_task(self._lifecycle.program.prompt(self.id, [text]))
        given_up = asyncio.create_task(self._retries.wait_until_hopeless())
        try:
            await asyncio.wait({answer, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await self._give_up(turn, answer, reason=given_up.result())
            else:
                response = answer.result()
                self._lifecycle.is_empty = False  # an agent may store a session with its first answer
                self._is_instructed = self._is_instructed or instructs
                self._judge(turn, response, prompt)
        except RefusedError as error:
            self._fail(turn, str(error))
        finally:
            await cancel_all(answer, given_up)

    async def _prepared(self, prompt: str) -> tuple[str, bool]:
        """Return the prompt as the agent accepts it, and whether it adds the system
        prompt.

        The prompt comes first: its first line may describe it to a program.
        """
        prompt = without_surrogates(prompt)
        command = command_of(prompt)
        if command and self._quirks.unknown_commands_vanish and not await self._is_known(command):
            prompt = not_a_command(prompt)
            command = ""
        if self._is_instructed or command or self.options.system_prompt is None:
            return prompt, False
        return f"{prompt}\n\n{system_block(without_surrogates(self.options.system_prompt))}", True

    async def _is_known(self, command: str) -> bool:
        if command == "compact" and self._quirks.compact:
            return True
        try:
            async with asyncio.timeout(_COMMANDS_SECONDS):
                return command in await self._translator.known_commands()
        except TimeoutError:
            return False

    def _judge(self, turn: Turn, response: TurnDone, prompt: str) -> None:
        """End the turn with the reason that the agent reports."""
        reason = _REASONS[response.stop_reason]
        if (usage := self._meters.turn(response.usage)) is not None:
            turn.emit(UsageReported(usage))
        if reason is EndReason.DONE and self._translator.error is not None:
            self._fail(turn, self._translator.error)
            return
        if reason is EndReason.DONE and turn.ending and not self._translator.has_answered:
            reason = EndReason.INTERRUPTED  # an agent that waits for a retry reports success
        if reason is EndReason.DONE and is_compaction(prompt):
            self._is_instructed = self.options.system_prompt is None  # the summary may have dropped the system prompt
            turn.emit(Compacted())
        self._translator.finish("interrupted")
        turn.end(reason)

    def _fail(self, turn: Turn, error: str) -> None:
        limit = find_limit(error)
        if limit is not None:
            turn.emit(limit)
        self._translator.finish("interrupted")
        turn.end(EndReason.ERROR, error=error)

    async def _give_up(self, turn: Turn, answer: asyncio.Task[TurnDone], *, reason: str) -> None:
        """Stop a turn that would retry endlessly, as an interrupt does."""
        await self._lifecycle.program.cancel(self.id)
        await asyncio.wait({answer}, timeout=STOP_SECONDS)
        if not answer.done():
            await self._lifecycle.program.kill(grace=_GRACE)
        self._fail(turn, f"{self.provider}: {reason}")

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
        if focus and not self._quirks.compact_focus:
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
        """Return the available models.

        If the agent offers none, the one that the user set.
        """
        offered = models_of(self._translator.options)
        chosen = self._env.get(self._quirks.model_variable, "")
        if not offered and chosen:
            return [ModelInfo(chosen, chosen)]
        return offered

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
            models=bool(self.models()) or self._quirks.any_model,
        )

    async def close(self) -> None:
        """End the turn and the program."""
        await self.interrupt()
        await self._lifecycle.leave()


def command_of(prompt: str) -> str:
    """Return the name of the command that a prompt calls, "" if it calls none."""
    text = prompt.strip()
    if not text.startswith(_COMMAND):
        return ""
    return text[1:].partition("\n")[0].partition(" ")[0]


def is_compaction(prompt: str) -> bool:
    return command_of(prompt) == "compact"


def not_a_command(prompt: str) -> str:
    """Return the text so that an agent does not read it as a command, for example a
    path.
    """
    return f"{_HIDDEN}{prompt}"


def system_block(system_prompt: str) -> str:
    """Wrap the system prompt; the protocol can only send it with the first prompt."""
    return f"<system_prompt>\n{system_prompt}\n</system_prompt>"


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON cannot represent."""
    return text.encode(errors="replace").decode()
