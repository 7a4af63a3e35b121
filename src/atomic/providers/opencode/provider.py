"""OpenCode, driven through `opencode serve` on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atomic.config import atomic_home
from atomic.providers.base import Capabilities, Health, ModelInfo, SessionOptions
from atomic.providers.errors import ProgramMissingError, ProviderError
from atomic.providers.live import LiveProvider, LiveSession, undisturbed
from atomic.providers.programs import find_program

try:
    from atomic.providers.opencode.health import INSTALL, examine
    from atomic.providers.opencode.models import list_models
    from atomic.providers.opencode.plan import ServerPlan, plan_server
    from atomic.providers.opencode.pool import leased
    from atomic.providers.opencode.session import OpencodeSession
    from atomic.providers.opencode.stream import LIVENESS
    from atomic.providers.opencode.trust import refuse_strangers
except ModuleNotFoundError as error:
    raise ProgramMissingError(
        f"opencode: a package that it needs is not installed ({error.name})",
        provider="opencode",
        remedy="pip install 'atomic-workflows[opencode]'",
    ) from error


class OpencodeProvider(LiveProvider):
    """The OpenCode server; sessions with the same needs share one."""

    name = "opencode"
    capabilities = Capabilities(
        resume=True,
        fork=True,
        subagents=True,
        custom_tools=True,
        mcp_servers=True,
        questions=True,
        multi_select=True,
        system_prompt=True,
        tool_selection=True,
        max_turns=True,
        models=True,
        thinking=True,
        usage=True,
        cost=True,
        context_meter=True,
        compact=True,
        structured="native",
    )
    liveness = LIVENESS  # seconds

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; leaving the context ends it, and with the last one the server. Raises ProviderError."""
        folder = _folder(options)
        if not options.trusted:
            refuse_strangers(folder)
        async with leased(self._plan(options)) as shared:
            session = OpencodeSession(shared, self.capabilities, options, str(folder))
            try:
                await session.open()
                yield session
            finally:
                await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """The models of all providers that can be used here. Raises ProviderError."""
        async with leased(self._plan(SessionOptions())) as shared, shared.use() as server:
            return await list_models(server.api, _neutral_folder())

    async def check(self) -> Health:
        """Installed? New enough? Is there any key or login?"""
        try:
            program = self._program()
        except ProgramMissingError as error:
            return Health(False, remedy=str(error))
        return await examine(program, self.settings)

    def _plan(self, options: SessionOptions) -> ServerPlan:
        return plan_server(str(self._program()), self.settings, options, liveness=self.liveness)

    def _program(self) -> Path:
        return find_program("opencode", "opencode", self.settings, install=INSTALL)


def _folder(options: SessionOptions) -> Path:
    folder = Path(os.path.abspath(options.cwd or os.getcwd()))
    if not folder.is_dir():
        raise ProviderError(f'Folder not found: "{folder}" (OpenCode was to work there)', provider="opencode")
    return folder


def _neutral_folder() -> str:
    """A folder that is no project's: OpenCode looks around in the one that a call names."""
    folder = atomic_home() / "opencode"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
