"""Workflows in memory with scripted agents: `run_workflow` without a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.graph import CompiledGraph
from atomic.providers import AgentProvider
from atomic.runs.events import RunEnded, WorkflowEvent
from atomic.runs.executor import WorkflowRun
from atomic.runs.host import Runtime
from atomic.sessions.store import SessionStore
from atomic.testing import play
from atomic.workflows import AtomicError, State
from atomic.workflows.definition import LoadedWorkflow, WorkflowDefinition, WorkflowStateParams
from tests.runs.small_runtime import Entities, Named


def definition(graph: CompiledGraph[Any] | None, name: str = "flow", **facts: Any) -> WorkflowDefinition:
    """Return a workflow, as if it came from a file."""

    def create_state(params: WorkflowStateParams) -> State | Mapping[str, Any]:
        assert graph is not None
        return {"prompt": params.prompt} if "prompt" in graph.state_type.__struct_fields__ else {}

    loaded = LoadedWorkflow(graph=graph, create_state=create_state)
    return WorkflowDefinition(name=name, loader=lambda _: loaded, **facts)


class Library:
    """Entities, and no workflows or tools."""

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        self.workflows = Named({})
        self.tools = Named({})


def runtime(folder: Path, *calls: Mapping[str, Any], entities: Entities | None = None, **facts: Any) -> Runtime:
    """Return a runtime whose agent replays these calls; `agents` are others by name."""
    agents: Mapping[str, Sequence[Mapping[str, Any]]] = {"replay": calls, **facts.pop("agents", {})}
    made: dict[str, AgentProvider] = {}

    async def choose(name: str | None) -> AgentProvider:
        wanted = name or "replay"
        if wanted not in agents:
            raise AtomicError(f"no agent {wanted}")
        if wanted not in made:
            path = folder / f"{wanted}.jsonl"
            lines = ({"atomic_recording": 1}, *agents[wanted])
            path.write_bytes(b"\n".join(map(msgspec.json.encode, lines)) + b"\n")
            made[wanted] = play(path)
        return made[wanted]

    (folder / "project").mkdir(exist_ok=True)
    return Runtime(
        store=SessionStore(folder / "home"),
        project=folder / "project",
        choose=choose,
        library=Library(entities or Entities()),
        **facts,
    )


async def all_events(run: WorkflowRun) -> list[WorkflowEvent]:
    """Return all events of a run."""
    return [event async for event in run]


def ending(events: Sequence[WorkflowEvent]) -> RunEnded:
    last = events[-1]
    assert isinstance(last, RunEnded)
    return last
