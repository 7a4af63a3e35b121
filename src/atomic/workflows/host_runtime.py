"""What a host brings to a run, and what it is told by it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from atomic.config import Settings
from atomic.providers.base import SessionOptions
from atomic.providers.events import AgentEvent
from atomic.questions import Question
from atomic.tasks import Task, TaskList
from atomic.tasks.file import AnyPath
from atomic.workflows.definition import Untrusted
from atomic.workflows.door import Caller
from atomic.workflows.governor import CapReached, OnLimit
from atomic.workflows.limits import Caps
from atomic.workflows.runtime import Entities, Tools, Workflows

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider

Answer = str | list[str]


class Person(Protocol):
    """Somebody in front of a host."""

    async def ask(self, question: Question) -> Answer | None:
        """The answer; None if the person does not want to answer now."""
        ...


class Choices(msgspec.Struct, frozen=True):
    """What `--agent` and `--model` say: for a role, or under "" for all."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}


ChooseProvider = Callable[[str | None], Awaitable["AgentProvider"]]
Prepare = Callable[["AgentProvider", SessionOptions, Callable[[str], object]], Awaitable[SessionOptions]]
"""From a provider and the options of a session to its options; what a person is to know is told on the way."""


class Runtime(msgspec.Struct, frozen=True):
    """What a host brings to a run. `choose` finds a provider by its name, None: the one to take if none is named."""

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
    others: Sequence[str] = ()  # providers that `--on-limit switch` may go on with
    record: str | None = None
    untrusted: Untrusted | None = None  # gates of the project that nobody has approved
    trusted: bool = False  # the project's own hooks, plugins and MCP servers may run
    prepare: Prepare | None = None  # adds to each session what the user has configured
    person: Person | None = None
    clock: Callable[[], float] = time.time
    trust_after: Callable[[Any], Any] | None = None  # what was trusted at the start, with what the run changed since

    @property
    def folder(self) -> Path:
        return self.cwd or self.project

    def options(self, model: str | None) -> dict[str, Any]:
        """What a session keeps of it: a resume goes on with that where nothing else is said."""
        return {
            "agents": dict(self.choices.agents),
            "models": dict(self.choices.models),
            "caps": msgspec.to_builtins(self.caps),
            "on_limit": self.on_limit,
            "record": self.record,
            "model": model,
        }


class Reporter(Protocol):
    """What a run is told by its runtime."""

    def activity(self, caller: Caller, event: AgentEvent) -> None: ...

    def cap(self, reached: CapReached) -> None: ...

    def parked(self, until: float) -> None: ...

    def began_call(self, line: Mapping[str, Any]) -> None: ...

    def call(self, line: Mapping[str, Any]) -> None: ...

    def tasks(self, tasks: Sequence[Task]) -> None: ...

    def write_tasks(self, path: AnyPath, tasks: TaskList) -> None: ...

    def warn(self, text: str) -> None: ...

    def answered(self, question: Question) -> None: ...

    def named(self, ids: Mapping[str, Sequence[str]]) -> None: ...
