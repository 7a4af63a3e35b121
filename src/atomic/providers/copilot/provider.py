"""GitHub Copilot: the Copilot CLI as a server that is ours. Its SDK is never imported: docs/decisions/0010."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atomic.providers.base import Capabilities, Health, ModelInfo, SessionOptions
from atomic.providers.copilot.environ import environment
from atomic.providers.copilot.health import INSTALL, examine
from atomic.providers.errors import ProgramMissingError
from atomic.providers.live import LiveProvider, LiveSession, undisturbed
from atomic.providers.programs import find_program


class CopilotProvider(LiveProvider):
    """The Copilot CLI; all sessions of a process share one program."""

    name = "copilot"
    capabilities = Capabilities(
        resume=True,
        fork=True,
        subagents=True,
        custom_tools=True,
        mcp_servers=True,
        mcp_switching=True,
        questions=True,
        multi_select=True,
        system_prompt=True,
        tool_selection=True,
        max_turns=True,
        models=True,
        thinking=True,
        usage=True,
        context_meter=True,
        compact=True,
        structured="native",
    )

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; leaving the context ends it. Raises ProviderError."""
        program = self._program()
        from atomic.providers.copilot.session import CopilotSession
        from atomic.providers.copilot.setup import set_up

        session = CopilotSession(self.capabilities, options, set_up(program, options, self.settings))
        try:
            await session.open()
            yield session
        finally:
            await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """GitHub's list with a login; without one, the models that the user set. Raises ProviderError."""
        program = self._program()
        from atomic.providers.copilot.listing import list_models

        return await list_models(program, self.settings)

    async def check(self) -> Health:
        """Installed? New enough? Logged in?"""
        try:
            program = self._program()
        except ProgramMissingError as error:
            return Health(False, remedy=str(error))
        return await examine(program, environment(self.settings))

    def _program(self) -> Path:
        return find_program("copilot", "copilot", self.settings, install=INSTALL)
