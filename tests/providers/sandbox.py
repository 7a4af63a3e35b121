"""Run a real agent with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from atomic.config import Settings
from atomic.providers import AgentProvider, AgentSession, SessionOptions, require_provider
from atomic.testing.model_server import ModelServer


class Sandbox:
    """A home folder, a work folder and a scripted model for one agent."""

    def __init__(self, agent: str, server: ModelServer, folder: Path, env: Callable[[Path], dict[str, str]]) -> None:
        self.agent = agent
        self.server = server
        self.home = folder / "home"
        self.work = folder / "wörk 日本 مرحبا"
        self.home.mkdir(exist_ok=True)
        self.work.mkdir(exist_ok=True)
        self.env = env(self.home)

    def options(self, **options: Any) -> SessionOptions:
        options = {"cwd": self.work, **options, "env": {**self.env, **options.get("env", {})}}
        return SessionOptions(**options)

    def open(
        self, *, using: Settings | AgentProvider | None = None, **options: Any
    ) -> AbstractAsyncContextManager[AgentSession]:
        """Open a session of the agent, by default with default settings."""
        if using is None or isinstance(using, Settings):
            using = require_provider(self.agent, using or self.settings())
        return using.open(self.options(**options))

    def settings(self) -> Settings:
        return Settings()
