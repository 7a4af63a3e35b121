"""Where the conversation is held: the folder, its project, and all that they bring; looked at once, and when asked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from atomic.base.redaction import Redactor
from atomic.base.untrusted_files import read_bounded_text
from atomic.chat.protocol import CommandInfo, CommandsListed
from atomic.commands import CommandRegistry
from atomic.config import ConfigError, Settings, atomic_home, find_project
from atomic.git import find_repository
from atomic.hosts import is_trusted
from atomic.providers import AgentProvider
from atomic.sessions.store import SessionStore
from atomic.wiring import SessionMcp, Wiring


class Place:
    """A folder to work in."""

    def __init__(self, cwd: Path) -> None:
        self.cwd, self.project = cwd, find_project(cwd) or cwd
        self.wiring = Wiring(self.project)
        self._mcp: dict[str, SessionMcp] = {}
        self._looking = asyncio.Lock()

    @property
    def settings(self) -> Settings:
        """Raises ConfigError."""
        return self.wiring.settings

    @property
    def commands(self) -> CommandRegistry:
        return self.wiring.commands

    @cached_property
    def store(self) -> SessionStore:
        """The sessions; the secrets of the settings are known to it, if those can be read."""
        try:
            environments = [known.env for known in self.settings.providers.values()]
        except ConfigError:  # whoever needs the settings says so
            environments = []
        servers = self.wiring.mcp.entries
        environments += [server.env for server in servers]
        headers = [server.headers for server in servers]
        return SessionStore(atomic_home(), Redactor.of_environment(*environments, headers=headers))

    async def is_trusted(self) -> bool:
        """Whether what the folder brings may run; to know that, its files are read."""
        return await asyncio.to_thread(is_trusted, str(self.cwd))

    @property
    def shown(self) -> str:
        """The folder as people write it."""
        home, cwd = str(Path.home()), str(self.cwd)
        return f"~{cwd[len(home) :]}" if cwd == home or cwd.startswith(home + os.sep) else cwd

    @property
    def branch(self) -> str:
        """The branch that is checked out; no git is run for it."""
        repository = find_repository(self.cwd)
        if repository is None:
            return ""
        try:
            head = read_bounded_text(repository.git_dir / "HEAD").strip()
        except OSError:
            return ""
        return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:8]

    async def look(self) -> bool:
        """Read the commands, again if something has changed; whether they are others now."""
        async with self._looking:
            return await asyncio.to_thread(self._look)

    def _look(self) -> bool:
        had = "commands" in self.wiring.__dict__
        changed = self.wiring.refresh() if had else True
        _ = self.wiring.commands
        return changed

    def listed(self) -> CommandsListed:
        """The commands and agents for the prompt."""
        commands = [
            CommandInfo(one.name, one.description, one.category, tuple(one.aliases), one.argument_hint, one.hidden)
            for one in self.commands.all()
        ]
        agents = [
            CommandInfo(one.name, one.description, "agent", tuple(one.aliases), one.argument_hint, one.hidden)
            for one in self.wiring.entities.all("agent")
        ]
        return CommandsListed(commands=tuple(commands), agents=tuple(agents))

    async def session_mcp(self, provider: AgentProvider) -> tuple[SessionMcp, Sequence[str]]:
        """The servers for sessions of an agent, tried once; and what a person is to know, told once."""
        known = self._mcp.get(provider.name)
        if known is not None:
            return known, ()
        found = self._mcp[provider.name] = await self.wiring.session_mcp(provider, trusted=await self.is_trusted())
        return found, [*found.notices, *self.wiring.entity_notices]

    def switch_mcp_server(self, name: str, enabled: bool) -> None:
        """Raises McpStateError."""
        self.wiring.switch_mcp_server(name, enabled)
        self._mcp.clear()
