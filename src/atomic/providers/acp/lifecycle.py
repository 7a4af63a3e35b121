"""The life of a session's program: start, model, resume after an end, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.base.errors import suggest
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.acp.client import Client
from atomic.providers.acp.launch import Launch, Server, protocol_servers
from atomic.providers.acp.limits import RetryMonitor
from atomic.providers.acp.messages import ConfigOption, McpKinds, Opened
from atomic.providers.acp.program import AcpProgram, RefusedError, running_agent
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
        retries: RetryMonitor,
        left_out: Callable[[str], None],
    ) -> None:
        self.id = ""
        self.model = None if launch.agent.quirks.model_flag else launch.options.model
        self.is_empty = launch.options.resume is None  # without a prompt, it may not be stored
        self._launch = launch
        self._left_out = left_out  # receives messages about unsupported servers
        self._client = client
        self._translator = translator
        self._retries = retries
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
        seconds = start_seconds()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._start_in_time()
        except TimeoutError as error:
            if not limit.expired():
                raise
            provider = self._launch.agent.provider
            raise not_started(provider, provider, seconds) from error

    async def _start_in_time(self) -> None:
        launch = self._launch
        agent = launch.agent
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=temporary_prefix("acp"))))
            program, child = await stack.enter_async_context(
                running_agent(
                    launch.argv(folder), agent, self._client, self._translator, cwd=str(launch.cwd), env=launch.env
                )
            )
            child.on_stderr = self._retries.receive
            await program.initialize(may_ask=launch.options.ask is not None)
            opened = await self._open(program, self._servers(program.can.mcp_capabilities))
            self._translator.program_started(self.id, opened.config_options)
            if self.model is not None:
                await self._choose_model(program, self.model)
            self._stack = stack.pop_all()
            self._program = program

    async def _end(self) -> None:
        self._program = None
        stack = self._stack
        self._stack = AsyncExitStack()
        await stack.aclose()

    def _servers(self, takes: McpKinds) -> list[Server]:
        provider = self._launch.agent.provider
        if self._launch.own_servers and not takes.http:
            raise UnsupportedError(
                f"{provider} cannot take custom tools: it does not support MCP servers over HTTP", provider=provider
            )
        return protocol_servers(self._launch.protocol_servers, takes, provider, self._left_out)

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
        agent = self._launch.agent
        option, value = model_choice(
            self._translator.options, model, provider=agent.provider, any_model=agent.quirks.any_model
        )
        self._translator.options = await program.choose(self.id, option, value)


def models_of(options: Sequence[ConfigOption]) -> list[ModelInfo]:
    """Return the available models."""
    chosen = _model_option(options)
    return [] if chosen is None else _choices(chosen)


def current_model(options: Sequence[ConfigOption]) -> str:
    """Return the model that is chosen now, or "" where the agent does not report it."""
    option = _model_option(options)
    return option.current_value if option is not None and isinstance(option.current_value, str) else ""


def model_choice(options: Sequence[ConfigOption], model: str, *, provider: str, any_model: bool) -> tuple[str, str]:
    """Return the option and value that select a model.

    Raise ProviderError with the nearest model on offer.
    """
    option = _model_option(options)
    known = [] if option is None else [one.id for one in _choices(option)]
    if model in known or any_model:
        return (MODEL if option is None else option.id), model
    if option is None:
        raise UnsupportedError(f"{provider} does not support choosing the model", provider=provider)
    hint = suggest(model, known, otherwise=f"it has: {', '.join(known[:10])}")
    raise ProviderError(f'{provider} has no model "{model}"', provider=provider, remedy=hint)


def _model_option(options: Sequence[ConfigOption]) -> ConfigOption | None:
    selects = [option for option in options if option.type == "select"]
    return next((one for one in selects if one.category == MODEL or one.id == MODEL), None)


def _choices(option: ConfigOption) -> list[ModelInfo]:
    found: list[ModelInfo] = []
    for entry in option.options:
        found += [ModelInfo(one.value, one.name) for one in (*entry.options, entry) if one.value]
    return found
