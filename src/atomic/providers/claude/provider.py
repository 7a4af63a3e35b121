"""Claude Code as a provider.

Its SDK may bring the program, but is never imported: docs/decisions/0010.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from atomic.config import Settings
from atomic.config.known_agents import require_known_agent
from atomic.providers.base import ALL_FEATURES, Health, ModelInfo, SessionOptions
from atomic.providers.claude.environment import PROVIDER, adds_sandbox_variable, environment
from atomic.providers.claude.health import health_of
from atomic.providers.errors import ProviderError
from atomic.providers.programs import find_package, find_program
from atomic.providers.session import LiveProvider, LiveSession, undisturbed

_INSTALL = require_known_agent("claude").install
_AS_ROOT = "Running as root: Atomic sets IS_SANDBOX=1, because Claude Code refuses to bypass permissions without it."

_shown: set[str] = set()  # notices shown once per process


class ClaudeProvider(LiveProvider):
    """Runs Claude Code, one program per session."""

    name = PROVIDER
    capabilities = ALL_FEATURES

    def require_program(self) -> None:
        find_claude(self.settings)

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session.

        The program starts with the first turn, or now to check that a session to be
        resumed exists.
        """
        program = find_claude(self.settings)
        from atomic.providers.claude.launch import Launch
        from atomic.providers.claude.session import ClaudeSession

        launch = Launch(program, self.settings, options)
        session = ClaudeSession(launch, self.capabilities, notice=partial(self._root_notice, options))
        try:
            await session.begin()
            yield session
        finally:
            await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models of the program.

        This needs neither a network nor a login.
        """
        program = find_claude(self.settings)
        from atomic.providers.claude.launch import Launch
        from atomic.providers.claude.session import ClaudeSession

        launch = Launch(program, self.settings, SessionOptions(cwd="/"))
        session = ClaudeSession(launch, self.capabilities, notice=lambda: None)
        try:
            return await session.models()
        finally:
            await undisturbed(session.close())

    async def check(self) -> Health:
        """Report whether Claude Code is installed and logged in, and its version."""
        try:
            program = find_claude(self.settings)
        except ProviderError as error:
            return Health(False, remedy=str(error))
        return await health_of(program, environment(self.settings))

    def _root_notice(self, options: SessionOptions) -> str | None:
        """Return the notice about running as root, once per process."""
        if _AS_ROOT in _shown or not adds_sandbox_variable(self.settings, options):
            return None
        _shown.add(_AS_ROOT)
        return _AS_ROOT


def find_claude(settings: Settings) -> Path:
    """Return the path of the program. Raise ProgramMissingError."""
    return find_program(PROVIDER, "claude", settings, install=_INSTALL, own_copy=_bundled)


def _bundled() -> Path | None:
    """Return the copy of the program in the SDK's wheel, if the extra is installed."""
    package = find_package("claude_agent_sdk")
    if package is None:
        return None
    bundled = package / "_bundled" / "claude"
    return bundled if bundled.is_file() else None
