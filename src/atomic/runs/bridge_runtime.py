"""A bridge as the `deps` of a run: turns and sub-agents, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from atomic.base.errors import AtomicError
from atomic.runs.subagents import Bridge
from atomic.workflows.runtime import Entities, EntityKind, EntityLike, SubagentRequest, SubagentResult

if TYPE_CHECKING:
    from atomic.providers.base import CustomTool
    from atomic.workspaces import OpenWorkspace, View

ValueT = TypeVar("ValueT")


def _refuse(what: str) -> NoReturn:
    raise AtomicError(f"a Bridge cannot {what}: run this in `async with agents(…) as runtime` with deps=runtime")


def _missing(what: str) -> Any:
    """Return a property that a bridge does not have. Reading it raises AtomicError."""
    return property(lambda self: _refuse(what))


class BridgeRuntime:
    """What the nodes of a run see of a bridge."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge

    @property
    def entities(self) -> Entities:
        return self.bridge.entities or _NoEntities()

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        """Run one sub-agent. See `Bridge.spawn`."""
        return await self.bridge.spawn(request)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        """Run several sub-agents at once. See `Bridge.spawn_parallel`."""
        return await self.bridge.spawn_parallel(requests, max_concurrency)

    async def ask_for(self, type: type[ValueT], request: SubagentRequest) -> ValueT:
        """Return an answer of that type. See `Bridge.ask_for`."""
        return await self.bridge.ask_for(type, request)

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
        workspace: OpenWorkspace | View | None = None,
    ) -> str:
        """Run one turn in a new session, and return the answer."""
        if session is not None:
            _refuse(f'keep the session "{session}" for other nodes')
        if workspace is not None:
            _refuse("work in a workspace")
        if provider not in (None, self.bridge.provider.name):
            _refuse(f'use the agent "{provider}"')
        request = SubagentRequest(agent or "", prompt, model=model, tools=tools)
        return await self.bridge.turn(request, custom_tools=custom_tools, strict=strict)

    # What only the runtime of `agents(…)` has.
    workflows = _missing("find workflows by name")
    tools = _missing("find custom tools")
    broker = _missing("ask the user")
    sessions = _missing("keep sessions by name")
    tasks = _missing("keep a task list")
    files = _missing("keep files")
    facts = _missing("keep facts")
    folder = _missing("name the folder of the run")
    workspaces = _missing("make workspaces")
    workspace = _missing("make workspaces")
    merge = _missing("merge work")
    check_variables = _missing("run checks")
    timed = _missing("limit the time of a run")
    trusted = _missing("know what the user trusts")
    configured = _missing("name the configured agents")
    provider_of = _missing("choose an agent by role")
    publish = _missing("save an address")
    config = _missing("keep a config")


class _NoEntities:
    """The entities of a bridge that was made without any."""

    def require(self, kind: EntityKind, name: str) -> EntityLike:
        _refuse(f'find the {kind} "{name}" without entities=')
