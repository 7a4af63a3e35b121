"""The one path for every workflow and every host: a session folder, a graph, and what the host is told.

The work runs in a task of its own; a host reads events and decides nothing. Stopping is cancelling: the engine records
what is done, the session becomes `paused`, and the last event says how to go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from atomic import __version__
from atomic.redact import Redactor
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session, SessionStore, this_owner
from atomic.step_names import split_first, without_items
from atomic.workflows.endings import Stop
from atomic.workflows.errors import UnknownRoleError
from atomic.workflows.events import (
    WorkflowEvent,
)
from atomic.workflows.host_runtime import Answer, Runtime
from atomic.workflows.work import Order, Work

if TYPE_CHECKING:
    from atomic.workflows.definition import LoadedWorkflow, WorkflowStateParams


class Definition(Protocol):
    """A workflow as it is run; `WorkflowDefinition` is one."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def state_version(self) -> int: ...

    @property
    def node_descriptions(self) -> Mapping[str, str]: ...

    @property
    def roles(self) -> Sequence[str]: ...

    def load(self) -> LoadedWorkflow: ...

    def config(self, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]: ...


def run_workflow(
    definition: Definition,
    prompt: str,
    runtime: Runtime,
    *,
    session: Session | None = None,
    config: Mapping[str, Any] | None = None,
    resume: bool = False,
    answers: Mapping[str, Answer] | None = None,
    model: str | None = None,
    max_iterations: int | None = None,
) -> WorkflowRun:
    """Run a workflow, or go on with the one of a session; the events, RunEnded last. `config` goes over what there is.

    Raises UnknownRoleError, and what `definition.load()` and the workflow's `check_start` raise, before there is a
    session. The first read raises RunOwnedError where another process has the run.
    """
    _check_roles(definition, runtime)
    order = Order(definition, definition.load(), prompt, config, resume, answers or {}, model, max_iterations)
    if order.loaded.check_start is not None and not resume:
        order.loaded.check_start(_params(order, runtime))
    return WorkflowRun(order, runtime, session)


class WorkflowRun(AsyncIterator[WorkflowEvent]):
    """A run under way: its events, and the way to stop it. Leaving it early stops it."""

    def __init__(self, order: Order, runtime: Runtime, session: Session | None) -> None:
        self._order, self._runtime = order, runtime
        self._work: Work | None = None
        redactor = _redactor(runtime)
        if session is None:
            self.session = _new_session(SessionStore(runtime.home, redactor), order, runtime)
        else:  # whoever found it did not know the secrets in the settings
            self.session = Session(session.dir, session.record, redactor)
            self.session.is_copy_changed, self.session.recovery = session.is_copy_changed, session.recovery
        self._stop: Stop | None = None

    @property
    def id(self) -> str:
        return self.session.id

    def stop(self, stop: Stop = Stop.INTERRUPT) -> None:
        """Interrupt what runs; the events go on to RunEnded. A second time changes nothing but to `cancel`."""
        self._stop = stop if self._stop is None or stop is Stop.CANCEL else self._stop
        if self._work is not None:
            self._work.stop(self._stop)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkflowEvent:
        if self._work is None:
            self._work = Work(self._order, self._runtime, self.session)
            if self._stop is not None:
                self._work.stop(self._stop)
        event = await self._work.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Stop it, if it is not over, and wait for its end."""
        if self._work is not None:
            self.stop()
            await self._work.over()


def _check_roles(definition: Definition, runtime: Runtime) -> None:
    """A role that is not there would be noticed when the money is spent."""
    if not definition.roles:
        return
    known = {"", *definition.roles, *definition.node_descriptions}
    for flag, chosen in (("--agent", runtime.choices.agents), ("--model", runtime.choices.models)):
        for role in chosen:
            if known.isdisjoint((role, without_items(role), split_first(role)[0])):
                raise UnknownRoleError(flag, role, definition.name, definition.roles)


def _params(order: Order, runtime: Runtime) -> WorkflowStateParams:
    """What a workflow is told of a run that has no session yet."""
    from atomic.workflows.definition import WorkflowStateParams

    config = {**order.definition.config(runtime.settings.workflows), **(order.config or {})}
    return WorkflowStateParams(
        prompt=order.prompt, cwd=str(runtime.folder), project=str(runtime.project), config=config,
        max_iterations=order.loaded.iteration_limit(order.max_iterations, config),
        given=order.config or {}, untrusted=runtime.untrusted,
    )  # fmt: skip


def _redactor(runtime: Runtime) -> Redactor:
    """Return one that knows the secrets of the environment, of the settings and of the user's MCP servers."""
    from atomic.mcp import load_mcp_entries

    entries = load_mcp_entries(runtime.project).entries
    environments = [known.env for known in runtime.settings.providers.values()]
    environments += [entry.env for entry in entries]
    return Redactor.of_environment(*environments, headers=[entry.headers for entry in entries])


def _new_session(store: SessionStore, order: Order, runtime: Runtime) -> Session:
    definition = order.definition
    config = {**definition.config(runtime.settings.workflows), **(order.config or {})}
    record = SessionRecord(
        id=store.new_id(),
        workflow=definition.name,
        workflow_version=definition.version,
        workflow_source=definition.source,
        workflow_path="" if definition.path is None else str(definition.path),
        workflow_sha256=definition.sha256,
        project=str(runtime.project),
        prompt=order.prompt,
        config=config,
        owner=this_owner(),
        atomic_version=__version__,
        state_version=definition.state_version,
        cwd=str(runtime.folder),
        options={**runtime.options(order.model), "given": sorted(order.config or {})},
    )
    return store.create(record)
