"""`run_workflow`, with which every host runs every workflow.

It checks the request and creates the session; `run` does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atomic import __version__
from atomic.base.step_names import split_first, without_items
from atomic.graph import CompiledGraph, FunctionWorkflow, Node, State
from atomic.runs.host import Answer, Runtime
from atomic.runs.isolation import check_isolation
from atomic.runs.run import RunRequest, WorkflowRun
from atomic.sessions.errors import RunNotStartedError
from atomic.sessions.model import SessionRecord
from atomic.sessions.store import Session, this_owner
from atomic.workflows.arguments import arguments_of
from atomic.workflows.builder import graph
from atomic.workflows.capabilities import is_isolated
from atomic.workflows.definition import LoadedWorkflow, Runnable, WorkflowDefinition, WorkflowStateParams
from atomic.workflows.errors import UnknownRoleError
from atomic.workflows.nodes import agent_node
from atomic.workflows.runtime import WorkflowRuntime

__all__ = ["WorkflowRun", "graph_of", "run_workflow"]


class ChatState(State):
    """The state of a workflow without a graph."""

    prompt: str = ""


def graph_of(name: str, loaded: LoadedWorkflow) -> Runnable:
    """Return the graph or the function of a workflow; without one, that of its chat."""
    return loaded.graph or _chat_graph(name)


def _chat_graph(name: str) -> CompiledGraph[ChatState]:
    """Return the graph of a workflow without one: a single turn with the prompt."""

    def prompt_of(state: ChatState) -> str:
        return state.prompt

    chat: Node[ChatState, WorkflowRuntime] = agent_node("chat", prompt_of)
    return graph(ChatState).then(chat).compile(name=name)


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
    cancel: bool = False,
) -> WorkflowRun:
    """Run a workflow, or resume a session, and return the events, RunEnded last.

    `config` overrides the config of the settings or of the resumed run. With `cancel` a
    run of a function is cancelled for good: what it has done is compensated. Raises
    UnknownRoleError, ArgumentError, and what `definition.load()` and the workflow's `check_start`
    raise, before a session is created. Reading the first event raises RunOwnedError if
    another process owns the run.
    """
    _check_roles(definition, runtime)
    loaded = definition.load()
    changed = config or {}
    known = session.record.config if session is not None and resume else definition.config(runtime.settings.workflows)
    merged = {**known, **changed}
    if loaded.check_start is not None and not resume:
        params: WorkflowStateParams = WorkflowStateParams(
            prompt=prompt, cwd=str(runtime.folder), project=str(runtime.project), config=merged,
            max_iterations=loaded.iteration_limit(max_iterations, merged),
            given=changed, untrusted=runtime.untrusted,
        )  # fmt: skip
        loaded.check_start(params)
    arguments: Mapping[str, Any] = {}
    if isinstance(loaded.graph, FunctionWorkflow) and not resume:
        arguments = arguments_of(loaded.graph, prompt, merged)
    if loaded.graph is not None and not resume and is_isolated(loaded.graph):
        check_isolation(merged, runtime.folder)
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
            config=merged,
            owner=this_owner(),
            atomic_version=__version__,
            state_version=definition.state_version,
            cwd=str(runtime.folder),
            options={**runtime.options(model), "given": sorted(changed)},
        )
        try:
            session = runtime.store.create(record)
        except OSError as error:
            raise RunNotStartedError(f"{runtime.store.folder} cannot be written: {error.strerror or error}") from error
    request = RunRequest(
        definition=definition,
        loaded=loaded,
        graph=graph_of(definition.name, loaded),
        prompt=prompt,
        config=merged,
        given=frozenset((*session.record.options.get("given", ()), *changed)),
        arguments=arguments,
        resume=resume,
        cancel=cancel,
        answers=answers or {},
        model=model,
        max_iterations=max_iterations,
    )
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
