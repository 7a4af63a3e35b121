"""Find the agent of a name, and its program."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.acp.known_agents import KNOWN, UNKNOWN, Known, Quirks
from atomic.providers.base import Capabilities
from atomic.providers.errors import ProgramMissingError, ProviderError, UnknownProviderError
from atomic.providers.programs import find_program


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be started."""

    name: str  # after `acp:`
    command: tuple[str, ...] = ()  # from the configuration; empty: the known one
    known: Known = UNKNOWN

    @property
    def provider(self) -> str:
        return f"acp:{self.name}"

    @property
    def capabilities(self) -> Capabilities:
        return self.known.can

    @property
    def quirks(self) -> Quirks:
        return self.known.quirks

    @property
    def is_opencode(self) -> bool:
        return self.known.settings == "opencode"


def find_agent(name: str, settings: Settings) -> Agent:
    """Return the agent of that name; the configuration overrides known agents.

    Raise UnknownProviderError.
    """
    configured = settings.acp.get(name)
    if configured is None and name not in KNOWN:
        raise UnknownProviderError(f"acp:{name}", [f"acp:{one}" for one in sorted({*KNOWN, *settings.acp})])
    if configured is not None and not configured.command:
        raise ProviderError(
            f"[acp.{name}] has an empty command",
            provider=f"acp:{name}",
            remedy="set it to the agent's program and arguments",
        )
    command = () if configured is None else tuple(configured.command)
    return Agent(name=name, command=command, known=KNOWN.get(name, UNKNOWN))


def command_line(agent: Agent, settings: Settings) -> tuple[str, ...]:
    """Return the program's path and its first arguments. Raise ProgramMissingError."""
    known = agent.known
    if agent.command:
        first = str(_on_path(agent, agent.command[0], remedy=f"install it, or correct [acp.{agent.name}] command"))
        return (first, *agent.command[1:])
    if known.settings:
        path = find_program(known.settings, known.program, settings, install=known.install)
    else:
        path = _on_path(agent, known.program, remedy=known.install)
    return (str(path), *known.args)


def _on_path(agent: Agent, program: str, *, remedy: str) -> Path:
    found = shutil.which(Path(program).expanduser())
    if found is None:
        raise ProgramMissingError(
            f"{agent.provider}: the program '{program}' is not installed", provider=agent.provider, remedy=remedy
        )
    return Path(found).absolute()  # the agent runs in another folder
