"""`run_workflow`, with which every host runs every workflow.

The run executes in its own task, and the host reads its events. A stopped run is
cancelled: the engine records the finished steps, the session becomes `paused`, and the
last event has the command that resumes the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from atomic import __version__
from atomic.base.step_names import split_first, without_items
from atomic.runs.endings import Stop
from atomic.runs.events import WorkflowEvent
from atomic.runs.host import Answer, Runtime
from atomic.runs.run import Execution, RunRequest
from atomic.sessions.errors import RunNotStartedError
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session, this_owner
from atomic.workflows.errors import UnknownRoleError

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
    """Run a workflow, or resume a session, and return the events, RunEnded last.

    `config` overrides the config of the settings or of the resumed run. Raises
    UnknownRoleError, and what `definition.load()` and the workflow's `check_start`
    raise, before a session is created. Reading the first event raises RunOwnedError if
    another process owns the run.
    """
    _check_roles(definition, runtime)
    request = RunRequest(definition, definition.load(), prompt, config, resume, answers or {}, model, max_iterations)
    if request.loaded.check_start is not None and not resume:
        request.loaded.check_start(_start_params(request, runtime))
    return WorkflowRun(request, runtime, session)


class WorkflowRun(AsyncIterator[WorkflowEvent]):
    """A run: its events, and the way to stop it. Closing it early stops it."""

    def __init__(self, request: RunRequest, runtime: Runtime, session: Session | None) -> None:
        self._request = request
        self._runtime = runtime
        self._execution: Execution | None = None  # created at the first read: it needs the event loop
        self._stop: Stop | None = None
        if session is None:
            session = _new_session(request, runtime)
        else:
            session.use_redactor(runtime.store.redactor)  # it was found before the settings were read
        self.session = session

    @property
    def id(self) -> str:
        return self.session.id

    def stop(self, stop: Stop = Stop.INTERRUPT) -> None:
        """Interrupt the run; its events continue to RunEnded.

        A second call only turns it into a cancellation.
        """
        if self._stop is None or stop is Stop.CANCEL:
            self._stop = stop
        if self._execution is not None:
            self._execution.stop(self._stop)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkflowEvent:
        if self._execution is None:
            self._execution = Execution(self._request, self._runtime, self.session)
            if self._stop is not None:
                self._execution.stop(self._stop)
        event = await self._execution.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Stop the run if it has not ended, and wait for its end."""
        if self._execution is not None:
            self.stop()
            await self._execution.wait()


def _check_roles(definition: Definition, runtime: Runtime) -> None:
    """Raise UnknownRoleError for a role that the workflow does not have, before money
    is spent.
    """
    if not definition.roles:
        return
    known = {"", *definition.roles, *definition.node_descriptions}
    for flag, chosen in (("--agent", runtime.choices.agents), ("--model", runtime.choices.models)):
        for role in chosen:
            if known.isdisjoint((role, without_items(role), split_first(role)[0])):
                raise UnknownRoleError(flag, role, definition.name, definition.roles)


def _start_params(request: RunRequest, runtime: Runtime) -> WorkflowStateParams:
    """Return the parameters of a run that has no session yet."""
    from atomic.workflows.definition import WorkflowStateParams

    config = {**request.definition.config(runtime.settings.workflows), **(request.config or {})}
    return WorkflowStateParams(
        prompt=request.prompt, cwd=str(runtime.folder), project=str(runtime.project), config=config,
        max_iterations=request.loaded.iteration_limit(request.max_iterations, config),
        given=request.config or {}, untrusted=runtime.untrusted,
    )  # fmt: skip


def _new_session(request: RunRequest, runtime: Runtime) -> Session:
    definition = request.definition
    config = {**definition.config(runtime.settings.workflows), **(request.config or {})}
    record = SessionRecord(
        id=runtime.store.new_id(),
        workflow=definition.name,
        workflow_version=definition.version,
        workflow_source=definition.source,
        workflow_path="" if definition.path is None else str(definition.path),
        workflow_sha256=definition.sha256,
        project=str(runtime.project),
        prompt=request.prompt,
        config=config,
        owner=this_owner(),
        atomic_version=__version__,
        state_version=definition.state_version,
        cwd=str(runtime.folder),
        options={**runtime.options(request.model), "given": sorted(request.config or {})},
    )
    try:
        return runtime.store.create(record)
    except OSError as error:
        raise RunNotStartedError(f"{runtime.store.folder} cannot be written: {error.strerror or error}") from error
