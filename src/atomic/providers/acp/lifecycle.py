"""The life of a session's program: start, model, resume after an end, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from atomic.base.errors import suggest
from atomic.providers.acp.launch import Launch, Server
from atomic.providers.acp.messages import ConfigOption, Opened
from atomic.providers.acp.program import AcpProgram, RefusedError, running_agent
from atomic.providers.acp.questions import Client
from atomic.providers.acp.translate import Translator
from atomic.providers.base import ModelInfo
from atomic.providers.errors import ProgramFailedError, ProviderError, UnsupportedError
from atomic.providers.programs import not_started, start_seconds

MODEL = "model"


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
        self.model = None if launch.agent.known.model_flag else launch.options.model
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
