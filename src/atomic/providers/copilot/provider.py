"""GitHub Copilot as a provider, through the Copilot CLI as a server.

Its SDK is never imported: docs/decisions/0010.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from atomic.providers.base import ALL_FEATURES, Health, ModelInfo, SessionOptions
from atomic.providers.copilot.environment import environment
from atomic.providers.copilot.health import INSTALL, examine
from atomic.providers.errors import ProgramMissingError
from atomic.providers.programs import find_program
from atomic.providers.session import LiveProvider, LiveSession, undisturbed


class CopilotProvider(LiveProvider):
    """Runs the Copilot CLI; all sessions of a process share one program."""

    name = "copilot"
    capabilities = replace(ALL_FEATURES, cost=False)

    def require_program(self) -> None:
        self._program()

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; leaving the context ends it. Raise ProviderError."""
        program = self._program()
        from atomic.providers.copilot.launch import set_up
        from atomic.providers.copilot.session import CopilotSession

        session = CopilotSession(self.capabilities, options, set_up(program, options, self.settings))
        try:
            await session.open()
            yield session
        finally:
            await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """Return GitHub's models with a login, else the configured ones. Raise
        ProviderError.
        """
        program = self._program()
        from atomic.providers.copilot.connection import list_models

        return await list_models(program, self.settings)

    async def check(self) -> Health:
        """Report whether Copilot is installed, recent enough and logged in."""
        try:
            program = self._program()
        except ProgramMissingError as error:
            return Health(False, remedy=str(error))
        return await examine(program, environment(self.settings))

    def _program(self) -> Path:
        return find_program("copilot", "copilot", self.settings, install=INSTALL)
