"""Claude Code as a provider. Its SDK may bring the program and is never imported: docs/decisions/0010."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from atomic.providers.base import Capabilities, Health, ModelInfo, SessionOptions
from atomic.providers.claude.environ import PROVIDER, adds_sandbox_word, environment
from atomic.providers.claude.health import health_of
from atomic.providers.errors import ProviderError
from atomic.providers.live import LiveProvider, LiveSession, undisturbed
from atomic.providers.programs import find_package, find_program

_INSTALL = "npm install -g @anthropic-ai/claude-code"
_AS_ROOT = "Running as root: Claude Code gets IS_SANDBOX=1, without which it would not let all tools run."

_said: set[str] = set()  # what is said once, not once a session


class ClaudeProvider(LiveProvider):
    """Runs Claude Code, one program for each session."""

    name = PROVIDER
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
        cost=True,
        context_meter=True,
        compact=True,
        structured="native",
    )

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[LiveSession]:
        """Open a session; the program starts with the first turn, or now to see that one to be resumed is there."""
        program = self._find_program()
        from atomic.providers.claude.launch import Launch
        from atomic.providers.claude.session import ClaudeSession

        launch = Launch(program, self.settings, options)
        session = ClaudeSession(launch, self.capabilities, greet=partial(self._greeting, options))
        try:
            await session.begin()
            yield session
        finally:
            await undisturbed(session.close())

    async def models(self) -> Sequence[ModelInfo]:
        """The models that the program offers; it needs neither a network nor a login for that."""
        program = self._find_program()
        from atomic.providers.claude.launch import Launch
        from atomic.providers.claude.session import ClaudeSession

        launch = Launch(program, self.settings, SessionOptions(cwd="/"))
        session = ClaudeSession(launch, self.capabilities, greet=lambda: None)
        try:
            return await session.models()
        finally:
            await undisturbed(session.close())

    async def check(self) -> Health:
        """Installed? Logged in? Which version?"""
        try:
            program = self._find_program()
        except ProviderError as error:
            return Health(False, remedy=str(error))
        return await health_of(program, environment(self.settings))

    def _find_program(self) -> Path:
        """Where it is. Raises ProgramMissingError."""
        return find_program(PROVIDER, "claude", self.settings, install=_INSTALL, own_copy=_bundled)

    def _greeting(self, options: SessionOptions) -> str | None:
        """What a person is to know of this session and all that follow: said once in the life of this process."""
        if _AS_ROOT in _said or not adds_sandbox_word(self.settings, options):
            return None
        _said.add(_AS_ROOT)
        return _AS_ROOT


def _bundled() -> Path | None:
    """The copy in the wheel of the SDK, which the extra brings."""
    package = find_package("claude_agent_sdk")
    bundled = None if package is None else package / "_bundled" / "claude"
    return bundled if bundled is not None and bundled.is_file() else None
