"""Any agent that implements the Agent Client Protocol, as a provider."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.config import Settings
from atomic.processes import ExecError, execute
from atomic.processes.temporary_folders import temporary_prefix
from atomic.providers.acp.agents import command_line, find_agent, vendor_program
from atomic.providers.acp.environment import environment
from atomic.providers.acp.launch import Launch
from atomic.providers.acp.session import AcpSession
from atomic.providers.base import Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.logins import found_login
from atomic.providers.programs import version_in_package
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
        self.capabilities = self._agent.features.can
        common = settings.provider("acp")
        if common.path or common.args:
            raise ProviderError(
                "[providers.acp] accepts only env, no path and no args",
                provider=self.name,
                remedy="set the command line as [acp.NAME] command",
            )

    def require_program(self) -> None:
        command_line(self._agent, self.settings)

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
        """Report whether the agent is installed, its version and its login.

        Only a session can show whether a login is valid.
        """
        try:
            program, *args = command_line(self._agent, self.settings)
        except ProviderError as error:
            return Health(False, program=vendor_program(self._agent), remedy=str(error))
        # Not in a project: an agent may read the settings of its working folder.
        env = environment(self._agent, self.settings, SessionOptions(), Path("/"))
        version = "" if self._agent.command else version_in_package(Path(program))
        if not version:
            health = await self._ask_version(program, args if self._agent.command else [], env)
            if not health.ok:
                return health
            version = health.version
        known = self._agent.known
        if self._agent.command or known is None:
            return Health(True, version, program)
        login = found_login(known, env)
        if not login and known.logins:
            return Health(False, version, program, f"no login was found; {self._agent.login}")
        return Health(True, version, program, login=login)

    async def _ask_version(self, program: str, args: Sequence[str], env: Mapping[str, str]) -> Health:
        try:
            result = await execute(program, *args, "--version", cwd="/", env=env, timeout=_SECONDS)
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
