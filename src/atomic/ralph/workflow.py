"""The graph: plan, work, check, review, fix; or yolo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from atomic.git import find_repository
from atomic.ralph import isolated_tasks, merge_run, plan_nodes, pull_request, review_nodes, task_nodes, yolo
from atomic.ralph.options import (
    check_operation,
    check_resume,
    check_texts,
    check_trust,
    check_writable,
    check_yolo,
    read_options,
)
from atomic.ralph.report import at_end
from atomic.ralph.review_nodes import accept
from atomic.ralph.run_folder import TASKS, Ralph, RunFolder
from atomic.ralph.state import RalphState, workers_of
from atomic.workflows import END, LoadedWorkflow, Node, NodeKind, NodeResult, WorkflowRuntime, graph, node
from atomic.workflows.definition import Capabilities, WorkflowDefinition, WorkflowStateParams
from atomic.workflows.task_loop import task_loop_node


def ralph(definition: WorkflowDefinition) -> LoadedWorkflow:
    """Return Ralph, ready to run."""
    compiled = (
        graph(RalphState)
        .node("prepare", plan_nodes.prepare)
        .if_(_is_yolo, _yolo(), else_=_tasks(), id="how")
        .if_(lambda state: state.options.pr, [node("publish", pull_request.publish)], id="with-pr")
        .if_(lambda state: state.options.accept, [node("accept", accept)], id="with-accept")
        .compile(name=definition.name, description=definition.description, max_steps=0, result=_no_result)
    )
    return LoadedWorkflow(
        graph=compiled,
        create_state=create_state,
        check_start=check_start,
        check_resume=check_resume,
        at_end=at_end,
        capabilities=Capabilities(subagents=True, task_list=True, questions=True),
    )


def _no_result(state: RalphState) -> None:
    """Return no result: `at_end` says what came of the goal."""


def agent(id: str, run: Callable[[Ralph], Awaitable[NodeResult]]) -> Node[RalphState, WorkflowRuntime]:
    """Return a node whose function calls an agent."""
    return Node(id=id, kind=NodeKind.AGENT, run=run)


def check_start(params: WorkflowStateParams) -> None:
    """Refuse options that cannot work, before there is a session.

    Raises StartError, UntrustedError.
    """
    check_texts(params)
    options = read_options(params)
    check_yolo(params)
    check_trust(params, options)
    if not options.dry_run and options.isolate == "none":
        check_operation(params.cwd)
    if not options.dry_run and (options.isolate == "none" or find_repository(params.cwd) is None):
        check_writable(params.cwd)
    if options.pr and not options.dry_run:
        pull_request.check_pull_request(params.cwd)


def create_state(params: WorkflowStateParams) -> Mapping[str, Any]:
    return {"options": read_options(params), "cwd": params.cwd, "session_dir": params.session_dir}


def _is_yolo(state: RalphState) -> bool:
    return state.options.mode == "yolo"


def _yolo() -> Any:
    turns = graph(RalphState).then(agent("turn", yolo.turn)).node("look", yolo.look).node("rest", yolo.rest)
    return graph(RalphState).node("dry-yolo", show).loop(turns, until=_is_over, max_iterations=0, id="yolo")


def _tasks() -> Any:
    rounds = (
        graph(RalphState)
        .then(_work())
        .node("settle", review_nodes.settle)
        .if_(review_nodes.is_reviewed, _review(), else_=[node("unreviewed", unreviewed)], id="how-reviewed")
    )
    return (
        graph(RalphState)
        .if_(
            lambda state: state.options.mode == "plan",
            [agent("plan", plan)],
            id="how-planned",
        )
        .node("dry", show)
        .loop(rounds, until=_is_over, max_iterations=0, id="rounds")
    )


def _work() -> Any:
    steps = (
        graph(RalphState)
        .node("begin", begin)
        .then(agent("work", work))
        .node("gate", task_nodes.check_turn)
        .node("merge", merge)
        .node("give-up", task_nodes.give_up)
    )
    return task_loop_node(
        "tasks",
        tasks_path=lambda state: f"{state.session_dir}/{TASKS}",
        task_nodes=steps,
        max_iterations=0,
        max_concurrency=workers_of,
    )


def _review() -> Any:
    one = agent("review", review_nodes.review)
    return (
        graph(RalphState)
        .map("reviews", lambda state: range(state.options.reviewers), one, max_concurrency=0)
        .node("judge", review_nodes.judge)
        .node("halt", review_nodes.halt)
    )


def _is_over(state: RalphState) -> bool:
    return state.over


async def plan(ctx: Ralph) -> NodeResult:
    """Split the goal into tasks; a merge has one task, which is known."""
    request = merge_run.find_request(ctx.deps.config)
    return await plan_nodes.plan(ctx) if request is None else await merge_run.plan(ctx, request)


async def begin(ctx: Ralph) -> NodeResult:
    """Prepare the work on a task."""
    if merge_run.is_merge(ctx):
        return await merge_run.begin(ctx)
    nodes = isolated_tasks if ctx.state.isolated else task_nodes
    return await nodes.begin(ctx)


async def work(ctx: Ralph) -> NodeResult:
    """Run one turn of a worker or fixer."""
    if merge_run.is_merge(ctx):
        await merge_run.bring_back(ctx)
    nodes = isolated_tasks if ctx.state.isolated else task_nodes
    return await nodes.work(ctx)


async def merge(ctx: Ralph) -> NodeResult:
    """Put the work of a task on the run's branch."""
    return await (merge_run.merge(ctx) if merge_run.is_merge(ctx) else isolated_tasks.merge(ctx))


async def show(ctx: Ralph) -> NodeResult:
    """End a dry run; the report has the plan."""
    return NodeResult(goto=END) if RunFolder(ctx).options.dry_run else NodeResult()


async def unreviewed(ctx: Ralph) -> NodeResult:
    """End the run without a review."""
    if merge_run.find_request(ctx.deps.config) is None:
        RunFolder(ctx).say("not reviewed: --review-rounds is 0")
    return NodeResult({"over": True})
