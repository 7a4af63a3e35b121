"""Which agent a name means, and where its program is."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.acp.known import KNOWN, UNKNOWN, Known, Ways
from atomic.providers.base import Capabilities
from atomic.providers.errors import ProgramMissingError, ProviderError, UnknownProviderError
from atomic.providers.programs import find_program


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that may be started."""

    name: str  # behind `acp:`
    command: tuple[str, ...] = ()  # of the configuration; none: the known one
    known: Known = UNKNOWN

    @property
    def provider(self) -> str:
        return f"acp:{self.name}"

    @property
    def capabilities(self) -> Capabilities:
        return self.known.can

    @property
    def ways(self) -> Ways:
        return self.known.ways

    @property
    def is_opencode(self) -> bool:
        return self.known.settings == "opencode"


def find_agent(name: str, settings: Settings) -> Agent:
    """The agent of that name; one of the configuration beats a known one. Raises UnknownProviderError."""
    configured = settings.acp.get(name)
    if configured is None and name not in KNOWN:
        raise UnknownProviderError(f"acp:{name}", [f"acp:{one}" for one in sorted({*KNOWN, *settings.acp})])
    if configured is not None and not configured.command:
        raise ProviderError(f"[acp.{name}] has an empty command", provider=f"acp:{name}", remedy="give its program")
    command = () if configured is None else tuple(configured.command)
    return Agent(name=name, command=command, known=KNOWN.get(name, UNKNOWN))


def command_line(agent: Agent, settings: Settings) -> tuple[str, ...]:
    """The program's path, and its first arguments. Raises ProgramMissingError."""
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
    return Path(found).absolute()  # the agent runs in another folder than Atomic
