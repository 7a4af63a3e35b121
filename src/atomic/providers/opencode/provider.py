"""OpenCode as a provider, through `opencode serve` on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from atomic.config import atomic_home
from atomic.providers.base import ALL_FEATURES, Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProgramMissingError
from atomic.providers.opencode.health import INSTALL, examine
from atomic.providers.opencode.project_files import refuse_project_code
from atomic.providers.programs import find_program
from atomic.providers.session import LiveProvider, LiveSession, undisturbed

if TYPE_CHECKING:
    from atomic.providers.opencode.launch import ServerPlan


class OpencodeProvider(LiveProvider):
    """Runs OpenCode servers; sessions with equal plans share one."""

    name = "opencode"
    capabilities = ALL_FEATURES
    liveness = 45.0  # seconds without a byte; the server sends a heartbeat every ten

    def require_program(self) -> None:
        self._program()

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session.

        Leaving the context ends it, and with the last one the server.

        Raise ProviderError.
        """
        folder = _folder(options)
        if not options.trusted:
            refuse_project_code(folder)
        plan = self._plan(options)
        from atomic.providers.opencode.server import leased
        from atomic.providers.opencode.session import OpencodeSession

        async with leased(plan) as shared:
            session = OpencodeSession(shared, self.capabilities, options, str(folder))
            try:
                await session.open()
                yield session
            finally:
                await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of all usable providers. Raise ProviderError."""
        plan = self._plan(SessionOptions())
        from atomic.providers.opencode.server import leased

        async with leased(plan) as shared, shared.use() as server:
            return await server.api.models(_neutral_folder())

    async def check(self) -> Health:
        """Report whether OpenCode is installed and has a key or login, and its version."""
        try:
            program = self._program()
        except ProgramMissingError as error:
            return Health(False, remedy=str(error))
        return await examine(program, self.settings)

    def _plan(self, options: SessionOptions) -> ServerPlan:
        program = self._program()
        from atomic.providers.opencode.launch import plan_server

        return plan_server(str(program), self.settings, options, liveness=self.liveness)

    def _program(self) -> Path:
        return find_program("opencode", "opencode", self.settings, install=INSTALL)


def _folder(options: SessionOptions) -> Path:
    return Path(os.path.abspath(options.cwd or os.getcwd()))


def _neutral_folder() -> str:
    """Return a folder outside of projects: OpenCode reads the folder that a request
    names.
    """
    folder = atomic_home() / "opencode"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
