"""All that a node may reach in a workflow: the Protocols behind `ctx.deps`.

The nodes that need an agent or an entity are written against these. Whoever runs a workflow brings the real
ones; a test brings a few lines. There is no global and no setter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from atomic.deferred import deferred
from atomic.graph import CompiledGraph
from atomic.questions import Question
from atomic.tasks import TaskList
from atomic.usage import Usage

if TYPE_CHECKING:
    from pathlib import Path

    from atomic.providers.base import CustomTool
    from atomic.redact import Redactor
    from atomic.sessions.facts import Facts
else:
    Path = deferred("pathlib", "Path")
    CustomTool = deferred("atomic.providers.base", "CustomTool")
    Redactor = deferred("atomic.redact", "Redactor")
    Facts = deferred("atomic.sessions.facts", "Facts")

EntityKind = Literal["command", "skill", "agent"]


class EntityLike(Protocol):
    """A command, skill or agent as a node needs it."""

    @property
    def name(self) -> str: ...

    @property
    def prompt(self) -> str: ...

    @property
    def model(self) -> str | None: ...

    @property
    def tools(self) -> Sequence[str] | None: ...

    @property
    def denied_tools(self) -> Sequence[str]: ...

    def expand(self, arguments: str) -> str:
        """Its prompt with the placeholders filled in."""
        ...


class Entities(Protocol):
    """Finds entities by name. `require` raises an error with the nearest name."""

    def require(self, kind: EntityKind, name: str) -> EntityLike: ...


class Workflows(Protocol):
    """Finds workflows by name."""

    def require(self, name: str) -> CompiledGraph[Any]: ...


class Tools(Protocol):
    """Finds custom tools by name: each is a plain or async function."""

    def require(self, name: str) -> Any: ...


class Broker(Protocol):
    """A host that can ask a person."""

    async def ask(self, question: Question) -> str | list[str]: ...


class SubagentRequest(msgspec.Struct, frozen=True):
    """What a sub-agent is to do."""

    agent: str
    task: str
    id: str = ""
    system_prompt: str | None = None
    model: str | None = None
    tools: Sequence[str] | None = None
    timeout: float | None = None
    cwd: str | None = None
    schema: Any = None


class SubagentResult(msgspec.Struct, frozen=True):
    """What came of it."""

    id: str
    success: bool
    text: str = ""
    error: str | None = None
    value: Any = None
    usage: Usage | None = None
    tool_calls: int = 0
    seconds: float = 0.0


class SubagentBridge(Protocol):
    """Spawns sub-agents over any provider, each in a fresh session."""

    async def spawn(self, request: SubagentRequest) -> SubagentResult: ...

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> Sequence[SubagentResult]: ...


class ContextMeter(Protocol):
    """How full a session's context is; `limit` 0 means that nobody knows."""

    @property
    def used(self) -> int: ...

    @property
    def limit(self) -> int: ...


class NamedSessions(Protocol):
    """The sessions that several nodes share by name."""

    async def clear(self, name: str) -> None:
        """End it, so that the next turn under that name starts fresh."""
        ...

    async def context(self, name: str) -> ContextMeter | None:
        """Its context meter; None if there is no such session yet."""
        ...

    async def compact(self, name: str) -> None:
        """Summarise its context."""
        ...


class Tasks(Protocol):
    """The run's own list of tasks, in its session's folder."""

    def read(self) -> TaskList: ...

    def write(self, tasks: TaskList) -> None:
        """Replace the list, and tell the host."""
        ...


class Files(Protocol):
    """The session's folder, as a workflow may write to it."""

    @property
    def dir(self) -> Path: ...

    @property
    def redactor(self) -> Redactor: ...

    def write(self, name: str, text: str) -> None:
        """Replace a file of the folder, without secrets."""
        ...


class WorkflowRuntime(Protocol):
    """The nodes' `ctx.deps`."""

    @property
    def entities(self) -> Entities: ...

    @property
    def workflows(self) -> Workflows: ...

    @property
    def tools(self) -> Tools: ...

    @property
    def bridge(self) -> SubagentBridge: ...

    @property
    def sessions(self) -> NamedSessions: ...

    @property
    def broker(self) -> Broker | None: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def files(self) -> Files: ...

    @property
    def facts(self) -> Facts:
        """Named values that the run keeps in its journal."""
        ...

    @property
    def check_variables(self) -> Sequence[str]:
        """The variables that checks get though they look like secrets."""
        ...

    def timed(self, what: str) -> AbstractAsyncContextManager[None]:
        """Interrupt work of the step that is no turn when `--max-time` and its grace are over; the run pauses then."""
        ...

    @property
    def trusted(self) -> bool:
        """Whether the user has approved what the project brings to run."""
        ...

    @property
    def configured(self) -> Sequence[str]:
        """The providers that flags and settings name, without looking whether they work."""
        ...

    def provider_of(self, role: str) -> str | None:
        """The provider that flags and settings name for a role; None: whichever is found."""
        ...

    def publish(self, url: str) -> None:
        """Note where the work was published; the session tells it."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's config as it is now: a resume may have changed what the run began with."""
        ...

    async def turn(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        session: str | None = None,
        tools: Sequence[str] | None = None,
        custom_tools: Sequence[CustomTool] = (),
        strict: bool = True,
    ) -> str:
        """One turn in a fresh session, or in the named one; `custom_tools` are offered where the provider can.

        Not `strict`: an agent's prompt and tools count as far as the provider can, and it is asked anyway.
        """
        ...
