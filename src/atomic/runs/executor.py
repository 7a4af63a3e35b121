"""`run_workflow`, with which every host runs every workflow.

It checks the request and finds or creates the session; `run` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atomic import __version__
from atomic.base.step_names import split_first, without_items
from atomic.runs.host import Answer, Runtime
from atomic.runs.run import RunRequest, WorkflowRun
from atomic.sessions.errors import RunNotStartedError
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session, this_owner
from atomic.workflows.definition import WorkflowDefinition, WorkflowStateParams
from atomic.workflows.errors import UnknownRoleError

__all__ = ["WorkflowRun", "run_workflow"]


def run_workflow(
    definition: WorkflowDefinition,
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
    loaded = definition.load()
    first_config = {**definition.config(runtime.settings.workflows), **(config or {})}
    if loaded.check_start is not None and not resume:
        params: WorkflowStateParams = WorkflowStateParams(
            prompt=prompt, cwd=str(runtime.folder), project=str(runtime.project), config=first_config,
            max_iterations=loaded.iteration_limit(max_iterations, first_config),
            given=config or {}, untrusted=runtime.untrusted,
        )  # fmt: skip
        loaded.check_start(params)
    if session is not None:
        session.use_redactor(runtime.store.redactor)  # it was found before the settings were read
    else:
        record = SessionRecord(
            id=runtime.store.new_id(),
            workflow=definition.name,
            workflow_version=definition.version,
            workflow_source=definition.source,
            workflow_path="" if definition.path is None else str(definition.path),
            workflow_sha256=definition.sha256,
            project=str(runtime.project),
            prompt=prompt,
            config=first_config,
            owner=this_owner(),
            atomic_version=__version__,
            state_version=definition.state_version,
            cwd=str(runtime.folder),
            options={**runtime.options(model), "given": sorted(config or {})},
        )
        try:
            session = runtime.store.create(record)
        except OSError as error:
            raise RunNotStartedError(f"{runtime.store.folder} cannot be written: {error.strerror or error}") from error
    request = RunRequest(definition, loaded, prompt, config, resume, answers or {}, model, max_iterations)
    return WorkflowRun(request, runtime, session)


def _check_roles(definition: WorkflowDefinition, runtime: Runtime) -> None:
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
