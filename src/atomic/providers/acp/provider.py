"""Any agent that implements the Agent Client Protocol, as a provider."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.config import Settings
from atomic.processes import ExecError, execute
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.acp.agents import command_line, find_agent
from atomic.providers.acp.environment import environment
from atomic.providers.acp.launch import Launch
from atomic.providers.acp.session import AcpSession
from atomic.providers.base import Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.session import LiveProvider, LiveSession, undisturbed
from atomic.providers.tool_server import serving_tools
from atomic.providers.tools import as_tools

_SECONDS = 30.0  # for `--version`


class AcpProvider(LiveProvider):
    """Runs an agent by its name, one program per session."""

    def __init__(self, detail: str, settings: Settings) -> None:
        """Find the agent. Raise UnknownProviderError, or ProviderError for invalid
        settings.
        """
        super().__init__(settings)
        self._agent = find_agent(detail, settings)
        self.name = self._agent.provider
        self.capabilities = self._agent.known.can
        common = settings.provider("acp")
        if common.path or common.args:
            raise ProviderError(
                "[providers.acp] accepts only env, no path and no args",
                provider=self.name,
                remedy="set the command line as [acp.NAME] command",
            )

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session in its own program."""
        async with self._started(options) as session:
            yield session

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of a new session: agents report them only there."""
        with TemporaryDirectory(prefix=temporary_prefix("acp")) as folder:
            async with self._started(SessionOptions(cwd=folder)) as session:
                return session.models()

    async def check(self) -> Health:
        """Report whether the agent is installed, and its version.

        Only a session can show whether it is logged in.
        """
        try:
            program, *args = command_line(self._agent)
        except ProviderError as error:
            return Health(False, remedy=str(error))
        words = args if self._agent.command else []
        # Not in a project: an agent may read the settings of its working folder.
        env = environment(self._agent, self.settings, SessionOptions(), Path("/"))
        try:
            result = await execute(program, *words, "--version", cwd="/", env=env, timeout=_SECONDS)
        except ExecError as error:
            return Health(False, program=program, remedy=str(error))
        number = re.search(r"\d+\.\d+[\w.+-]*", result.stdout)
        if result.exit_code != 0 and not self._agent.command:
            problem = (result.stderr or result.stdout).strip()[-200:]
            return Health(False, program=program, remedy=f"it does not report a version: {problem}")
        return Health(True, number[0].rstrip(".") if number else "", program)

    @asynccontextmanager
    async def _started(self, options: SessionOptions) -> AsyncGenerator[AcpSession]:
        serving = serving_tools(as_tools(options.custom_tools)) if options.custom_tools else nullcontext()
        async with serving as tools:
            session = AcpSession(Launch(self._agent, self.settings, options, tools))
            try:
                await session.open()
                yield session
            finally:
                await undisturbed(session.close())
