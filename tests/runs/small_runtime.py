"""A small runtime in memory, with everything that a node may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomic.base.errors import closest
from atomic.workflows import (
    AtomicError,
    CompiledGraph,
    Question,
    SubagentRequest,
    SubagentResult,
    WorkflowRuntime,
)
from atomic.workflows.runtime import EntityKind


@dataclass(frozen=True)
class Entity:
    name: str
    prompt: str = ""
    model: str | None = None
    tools: Sequence[str] | None = None
    denied_tools: Sequence[str] = ()

    def expand(self, arguments: str) -> str:
        return self.prompt.replace("$ARGUMENTS", arguments)


@dataclass
class Named:
    """Finds objects by name; an error names the nearest one."""

    known: Mapping[str, Any]

    def require(self, name: str) -> Any:
        if name not in self.known:
            near = closest(name, self.known)
            raise AtomicError(f'Not found: "{name}" (did you mean "{near}"?); there are {", ".join(self.known)}')
        return self.known[name]


@dataclass
class Entities:
    known: dict[tuple[EntityKind, str], Entity] = field(default_factory=dict[tuple[EntityKind, str], Entity])

    def add(self, kind: EntityKind, entity: Entity) -> None:
        self.known[kind, entity.name] = entity

    def require(self, kind: EntityKind, name: str) -> Entity:
        return Named({known: entity for (of, known), entity in self.known.items() if of == kind}).require(name)


@dataclass
class Bridge:
    """Answers for sub-agents; records their requests, and how many ran at once."""

    answer: Callable[[SubagentRequest], SubagentResult] = lambda request: SubagentResult(
        request.id, success=True, text=f"{request.agent} did {request.task}"
    )
    requests: list[SubagentRequest] = field(default_factory=list[SubagentRequest])
    limits: list[int | None] = field(default_factory=list[int | None])

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        self.requests.append(request)
        await asyncio.sleep(0)
        return self.answer(request)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> Sequence[SubagentResult]:
        self.limits.append(max_concurrency)
        return [await self.spawn(request) for request in requests]


@dataclass(frozen=True)
class Meter:
    used: int
    limit: int


@dataclass
class Sessions:
    meters: dict[str, Meter] = field(default_factory=dict[str, Meter])
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def clear(self, name: str) -> None:
        self.calls.append(("clear", name))

    async def compact(self, name: str) -> None:
        self.calls.append(("compact", name))

    async def context(self, name: str) -> Meter | None:
        return self.meters.get(name)


@dataclass
class Broker:
    answers: dict[str, str]

    async def ask(self, question: Question) -> str | list[str]:
        return self.answers[question.id]


@dataclass
class Turn:
    prompt: str
    options: dict[str, Any]


@dataclass
class Runtime:
    entities: Entities = field(default_factory=Entities)
    workflows: Named = field(default_factory=lambda: Named({}))
    tools: Named = field(default_factory=lambda: Named({}))
    bridge: Bridge = field(default_factory=Bridge)
    sessions: Sessions = field(default_factory=Sessions)
    broker: Broker | None = None
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tasks: Any = None
    files: Any = None
    facts: Any = None
    workspaces: Any = None
    workspace: Any = None
    merge: Any = None
    folder: Path = Path()
    check_variables: Sequence[str] = ()
    trusted: bool = False
    configured: Sequence[str] = ()
    turns: list[Turn] = field(default_factory=list[Turn])
    says: str | Callable[[str], str] = "done"

    def provider_of(self, role: str) -> str | None:
        return None

    def timed(self, what: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def publish(self, url: str) -> None:
        raise AtomicError(f"nobody publishes {url} here")

    async def turn(self, prompt: str, **options: Any) -> str:
        self.turns.append(Turn(prompt, {name: value for name, value in options.items() if value is not None}))
        await asyncio.sleep(0)
        return self.says if isinstance(self.says, str) else self.says(prompt)


def runtime_with_workflows(**graphs: CompiledGraph[Any]) -> Runtime:
    return Runtime(workflows=Named(graphs))


def check_that_it_is_one(runtime: Runtime) -> WorkflowRuntime:
    """Let pyright check that this runtime has every member of a real one."""
    return runtime
