"""What a host gives to a run: folders, agents, entities, settings, flags, and a person to ask."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.questions import Question
from atomic.runs.budget import OnLimit
from atomic.runs.limits import Caps
from atomic.workflows.definition import Untrusted
from atomic.workflows.runtime import Entities, Tools, Workflows

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider

Answer = str | list[str]


class Person(Protocol):
    """The user in front of a host."""

    async def ask(self, question: Question) -> Answer | None:
        """Return the answer; None if the user does not want to answer now."""
        ...


class Choices(msgspec.Struct, frozen=True):
    """The values of `--agent` and `--model` by role; the key "" means all roles."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}


ChooseProvider = Callable[[str | None], Awaitable["AgentProvider"]]
"""Finds a provider by name; None: the default one."""

Prepare = Callable[["AgentProvider", SessionOptions, Callable[[str], object]], Awaitable[SessionOptions]]
"""Completes the options of a session for a provider; the last argument shows a message to the user."""


class Runtime(msgspec.Struct, frozen=True):
    """What a host gives to a run."""

    home: Path
    project: Path
    choose: ChooseProvider
    entities: Entities
    workflows: Workflows
    tools: Tools
    cwd: Path | None = None  # None: the project
    settings: Settings = Settings()
    choices: Choices = Choices()
    caps: Caps = Caps()
    on_limit: OnLimit = "wait"
    others: Sequence[str] = ()  # providers that `--on-limit switch` may switch to
    record: str | None = None
    untrusted: Untrusted | None = None  # checks of the project that the user has not approved
    trusted: bool = False  # the project's own hooks, plugins and MCP servers may run
    prepare: Prepare | None = None  # adds to each session what the user has configured
    person: Person | None = None
    clock: Callable[[], float] = time.time
    trust_after: Callable[[Any], Any] | None = None  # adds the run's own changes to what was trusted at the start

    @property
    def folder(self) -> Path:
        return self.cwd or self.project

    def options(self, model: str | None) -> dict[str, Any]:
        """Return the flags that the session keeps; a resume uses them unless it gets others."""
        return {
            "agents": dict(self.choices.agents),
            "models": dict(self.choices.models),
            "caps": msgspec.to_builtins(self.caps),
            "on_limit": self.on_limit,
            "record": self.record,
            "model": model,
        }
