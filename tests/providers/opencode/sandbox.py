"""Run OpenCode with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from atomic.config import ProviderSettings, Settings
from atomic.providers import require_provider
from atomic.providers.opencode.provider import OpencodeProvider
from atomic.testing.model_server import Call, ModelServer, Script, opencode_env
from tests.providers.sandbox import Sandbox as AgentSandbox
from tests.support.programs import FOLDER

PROGRAM = FOLDER / "opencode"


def settings(program: Path = PROGRAM) -> Settings:
    return Settings(providers={"opencode": ProviderSettings(path=str(program))})


def provider(program: Path = PROGRAM, *, liveness: float | None = None) -> OpencodeProvider:
    found = require_provider("opencode", settings(program))
    assert isinstance(found, OpencodeProvider)
    if liveness is not None:
        found.liveness = liveness
    return found


def write_program(folder: Path, module: ModuleType) -> Path:
    """Write a program that runs a module of these tests."""
    program = folder / "opencode"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{module.__file__}" "$@"\n')
    program.chmod(0o755)
    return program


class Sandbox(AgentSandbox):
    def __init__(self, server: ModelServer, folder: Path, user: Mapping[str, Any]) -> None:
        super().__init__("opencode", server, folder, partial(opencode_env, server))
        content = json.loads(self.env["OPENCODE_CONFIG_CONTENT"])
        self.env["OPENCODE_CONFIG_CONTENT"] = json.dumps({**content, **user})

    def settings(self) -> Settings:
        return settings()


@asynccontextmanager
async def sandbox(
    folder: Path, scripts: Mapping[str, Script], user: Mapping[str, Any] | None = None
) -> AsyncGenerator[Sandbox]:
    """Start a scripted model; `user` is the user's configuration besides its address."""
    async with ModelServer(scripts) as server:
        yield Sandbox(server, folder, user or {})
    assert not server.other


def bash(command: str) -> Call:
    return Call("bash", {"command": command, "description": "x"})


def task(script: str, *, agent: str = "general") -> Call:
    """Return a call that starts a sub-agent with its own script."""
    return Call("task", {"description": script, "prompt": f"@@{script}@@ go", "subagent_type": agent})
