"""Any agent that speaks the Agent Client Protocol."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.config import Settings
from atomic.processes import ExecError, execute
from atomic.processes.leftovers import temporary_prefix
from atomic.providers.acp.agent import command_line, find_agent
from atomic.providers.acp.environ import environment
from atomic.providers.acp.launch import Launch
from atomic.providers.acp.session import AcpSession
from atomic.providers.base import Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.live import LiveProvider, LiveSession, undisturbed
from atomic.providers.tool_server import ToolServer, serving_tools
from atomic.providers.tools import as_tools

_SECONDS = 30.0  # to tell a version


class AcpProvider(LiveProvider):
    """Runs an agent by its name, one program for each session."""

    def __init__(self, detail: str, settings: Settings) -> None:
        """Raises UnknownProviderError, and ProviderError for settings that have no meaning here."""
        super().__init__(settings)
        self._agent = find_agent(detail, settings)
        self.name, self.capabilities = self._agent.provider, self._agent.capabilities
        common = settings.provider("acp")
        if common.path or common.args:
            raise ProviderError(
                "[providers.acp] takes no path and no args, only env",
                provider=self.name,
                remedy="give the command line as [acp.NAME] command",
            )

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session in a program of its own."""
        async with self._started(options) as session:
            yield session

    async def models(self) -> Sequence[ModelInfo]:
        """The models that a new session may choose from: agents tell them only then."""
        with TemporaryDirectory(prefix=temporary_prefix("acp")) as folder:
            async with self._started(SessionOptions(cwd=folder)) as session:
                return session.models()

    async def check(self) -> Health:
        """Installed? Which version? Whether it is logged in, only a session can tell."""
        try:
            program, *args = command_line(self._agent, self.settings)
        except ProviderError as error:
            return Health(False, remedy=str(error))
        words = args if self._agent.command else []
        # Nobody's project: an agent may read the settings of the folder that it is started in.
        env = environment(self._agent, self.settings, SessionOptions(), Path("/"))
        try:
            said = await execute(program, *words, "--version", cwd="/", env=env, timeout=_SECONDS)
        except ExecError as error:
            return Health(False, program=program, remedy=str(error))
        number = re.search(r"\d+\.\d+[\w.+-]*", said.stdout)
        if said.exit_code != 0 and not self._agent.command:
            problem = (said.stderr or said.stdout).strip()[-200:]
            return Health(False, program=program, remedy=f"it does not tell its version: {problem}")
        return Health(True, number[0].rstrip(".") if number else "", program)

    @asynccontextmanager
    async def _started(self, options: SessionOptions) -> AsyncGenerator[AcpSession]:
        async with _serving(options) as tools:
            session = AcpSession(Launch(self._agent, self.settings, options, tools))
            try:
                await session.open()
                yield session
            finally:
                await undisturbed(session.close())


def _serving(options: SessionOptions) -> AbstractAsyncContextManager[ToolServer | None]:
    """The caller's own tools, where an agent can call them."""
    return serving_tools(as_tools(options.custom_tools)) if options.custom_tools else nullcontext()
