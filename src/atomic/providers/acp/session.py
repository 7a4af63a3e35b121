"""A conversation with an agent, turn by turn, and the life of its program: start, model,
resume after an end, and end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from atomic.base.errors import suggest
from atomic.providers.acp.launch import Launch, Server
from atomic.providers.acp.limits import find_limit
from atomic.providers.acp.messages import ConfigOption, Opened, TurnDone
from atomic.providers.acp.program import AcpProgram, RefusedError, running_agent
from atomic.providers.acp.questions import Client
from atomic.providers.acp.translate import Meters, Translator
from atomic.providers.base import ContextUsage, ModelInfo
from atomic.providers.errors import ProgramFailedError, ProviderError, UnsupportedError
from atomic.providers.events import Compacted, EndReason, TurnEnded, UsageReported
from atomic.providers.programs import not_started, start_seconds
from atomic.providers.session import LiveSession, undisturbed
from atomic.providers.turn import Turn

MODEL = "model"
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
        super().__init__(agent.provider, agent.features.can, options)
        self._has_compact_focus = agent.features.has_compact_focus
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
            self._fail(turn, str(error))
            return
        self._lifecycle.is_empty = False  # an agent may store a session with its first answer
        self._is_instructed = self._is_instructed or instructs
        self._judge(turn, response, is_compaction=command == "compact")

    def _judge(self, turn: Turn, response: TurnDone, *, is_compaction: bool) -> None:
        """End the turn with the reason that the agent reports."""
        reason = _REASONS[response.stop_reason]
        if (usage := self._meters.turn(response.usage)) is not None:
            turn.emit(UsageReported(usage))
        if response.failure and not turn.ending:
            self._fail(turn, response.failure)
            return
        if reason is EndReason.DONE and turn.ending and not self._translator.has_answered:
            reason = EndReason.INTERRUPTED  # an agent that waits for a retry reports success
        if reason is EndReason.DONE and is_compaction:
            self._is_instructed = self.options.system_prompt is None  # the summary may have dropped the system prompt
            turn.emit(Compacted())
        self._translator.finish("interrupted")
        turn.end(reason)

    def _fail(self, turn: Turn, why: str) -> None:
        limit = find_limit(why)
        if limit is not None:
            turn.emit(limit)
        self._translator.finish("interrupted")
        turn.end(EndReason.ERROR, error=why)

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


class Lifecycle:
    """Runs one program at a time, with the session of `id` open in it."""

    def __init__(
        self,
        launch: Launch,
        *,
        client: Client,
        translator: Translator,
        left_out: Callable[[str], None],
    ) -> None:
        self.id = ""
        self.model = None if launch.agent.features.model_flag else launch.options.model
        self.is_empty = launch.options.resume is None  # without a prompt, it may not be stored
        self._launch = launch
        self._left_out = left_out  # receives messages about unsupported servers
        self._client = client
        self._translator = translator
        self._program: AcpProgram | None = None
        self._stack = AsyncExitStack()  # ends the program
        self._changing = asyncio.Lock()  # one start or end at a time

    @property
    def program(self) -> AcpProgram:
        """Return the running program. Raise ProgramFailedError if none runs."""
        if self._program is None:
            raise ProgramFailedError(
                f"{self._launch.agent.provider} is not running", provider=self._launch.agent.provider
            )
        return self._program

    @property
    def is_usable(self) -> bool:
        return self._program is not None and self._program.usable

    async def get_ready(self) -> None:
        """Make sure the session is open in a usable program. Raise ProviderError."""
        async with self._changing:
            if self._program is not None and not self._program.usable:
                await self._end()
            if self._program is None:
                await self._start()

    async def leave(self) -> None:
        async with self._changing:
            await self._end()

    async def choose_model(self, model: str) -> None:
        """Use that model from the next prompt on. Raise ProviderError."""
        await self.get_ready()
        await self._choose_model(self.program, model)
        self.model = model

    async def _start(self) -> None:
        launch = self._launch
        provider = launch.agent.provider
        seconds = start_seconds()
        limit = asyncio.timeout(seconds)
        try:
            async with limit, AsyncExitStack() as stack:
                running = running_agent(launch, self._client, self._translator)
                program = await stack.enter_async_context(running)
                await program.initialize(may_ask=launch.options.ask is not None)
                servers = launch.servers(program.can.mcp_capabilities, self._left_out)
                opened = await self._open(program, servers)
                self._translator.program_started(self.id, opened.config_options)
                if self.model is not None:
                    await self._choose_model(program, self.model)
                self._stack = stack.pop_all()
                self._program = program
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise not_started(provider, provider, seconds) from error

    async def _end(self) -> None:
        self._program = None
        stack = self._stack
        self._stack = AsyncExitStack()
        await stack.aclose()

    async def _open(self, program: AcpProgram, servers: Sequence[Server]) -> Opened:
        cwd = str(self._launch.cwd)
        options = self._launch.options
        if self.id:
            try:
                return await program.resume(self.id, cwd, servers)
            except (RefusedError, UnsupportedError):
                if not self.is_empty:
                    raise
        elif options.resume is not None and options.fork:
            self.id, opened = await program.fork(options.resume, cwd, servers)
            return opened
        elif options.resume is not None:
            opened = await program.resume(options.resume, cwd, servers)
            self.id = options.resume
            return opened
        self.id, opened = await program.begin(cwd, servers, self._launch.env)
        return opened

    async def _choose_model(self, program: AcpProgram, model: str) -> None:
        provider = self._launch.agent.provider
        option = _model_option(self._translator.options)
        if option is None:
            raise UnsupportedError(f"{provider} does not support choosing the model", provider=provider)
        known = [one.id for one in _choices(option)]
        if model not in known:
            hint = suggest(model, known, otherwise=f"it has: {', '.join(known[:10])}")
            raise ProviderError(f'{provider} has no model "{model}"', provider=provider, remedy=hint)
        self._translator.options = await program.choose(self.id, option.id, model)


def models_of(options: Sequence[ConfigOption]) -> list[ModelInfo]:
    """Return the available models."""
    chosen = _model_option(options)
    return [] if chosen is None else _choices(chosen)


def current_model(options: Sequence[ConfigOption]) -> str:
    """Return the model that is chosen now, or "" where the agent does not report it."""
    option = _model_option(options)
    return option.current_value if option is not None and isinstance(option.current_value, str) else ""


def _model_option(options: Sequence[ConfigOption]) -> ConfigOption | None:
    selects = [option for option in options if option.type == "select"]
    return next((one for one in selects if one.category == MODEL or one.id == MODEL), None)


def _choices(option: ConfigOption) -> list[ModelInfo]:
    found: list[ModelInfo] = []
    for entry in option.options:
        found += [ModelInfo(one.value, one.name) for one in (*entry.options, entry) if one.value]
    return found
