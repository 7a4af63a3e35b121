"""The nodes before the work: look at the project, then cut the goal into tasks."""

from __future__ import annotations

from atomic.errors import AtomicError
from atomic.providers.errors import ProviderError
from atomic.tasks import TaskList
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.options import read_list
from atomic.workflows.ralph.plan import PlanError, plan_in, plan_tool
from atomic.workflows.ralph.prompts import planner_prompt
from atomic.workflows.ralph.publishing import obstacle

WITHOUT_GATE = "not verified by a gate: tasks rest on changed files and on the review; --verify COMMAND gives one"
YOLO_WITHOUT_GATE = "not verified by a gate: it rests on the agent's promise alone; --verify COMMAND gives one"


class NoPlanError(AtomicError):
    """There is no plan that could be worked on."""

    code = "no_plan"


async def prepare(ctx: Ralph) -> NodeResult:
    """Choose the gates, see which are red before anything has changed, and take a picture of the folder."""
    from pathlib import Path

    desk = Desk(ctx)
    desk.check_folder()
    if desk.options.mode == "tasks":
        _take(desk, read_list(Path(desk.options.origin)))
    _choose_gates(desk)
    if desk.options.workers > 1:
        desk.say(
            f"{desk.options.workers} workers share one checkout, which is risky: each sees the half-done work of the "
            "others, a gate may fail for another's reason, and nobody can tell whose a change is"
        )
    if desk.options.pr and (why := await obstacle(desk.cwd)):
        desk.say(f"there will be no pull request unless you help before the end: {why}")
    untouched = await desk.pictures.take()
    if desk.options.dry_run:
        return NodeResult({"start": untouched})
    await desk.book.take_baseline(desk.cwd, desk.options.gate_timeout)
    _say_what_is_red(desk)
    start = await desk.pictures.take()  # gates leave caches, which nobody has worked on
    await Checkout(desk).begin(untouched, start)
    return NodeResult({"start": start})


def _choose_gates(desk: Desk) -> None:
    if desk.book.gates:  # a resume: they were chosen, and files may have changed since
        return
    desk.book.choose(desk.options.gates)
    for gate in desk.options.gates:
        if gate.origin != "--verify":
            desk.say(f"gate: {gate.command} (from {gate.origin}; --verify COMMAND chooses another)")
    if not desk.options.gates:
        desk.say(YOLO_WITHOUT_GATE if desk.options.mode == "yolo" else WITHOUT_GATE)


def _say_what_is_red(desk: Desk) -> None:
    for gate in desk.book.gates:
        if not desk.book.is_blocking(gate.command):
            desk.say(f"{gate.command} was red before the run began: it does not block until it passes once")


async def plan(ctx: Ralph) -> NodeResult:
    """Ask the planner; an unusable plan is asked for once more, with the reason."""
    desk, state = Desk(ctx), ctx.state
    again = bool(state.plan_problem)
    try:
        tasks = await _ask_planner(ctx, desk, attempt=2 if again else 1)
    except (PlanError, TurnFailedError, ProviderError) as error:
        if not again:
            return NodeResult({"plan_problem": str(error)}, goto=ctx.output_key)
        if isinstance(error, PlanError):
            raise NoPlanError(f"the planner gave no usable plan twice: {error}") from error
        raise
    _take(desk, tasks)
    return NodeResult({"planned": True})


def _take(desk: Desk, tasks: TaskList) -> None:
    """Work on these; what is wrong with them, and keeps nobody from working, is said."""
    for problem in tasks.problems:
        desk.say(f"tasks: {problem}")
    desk.write_tasks(tasks)


async def _ask_planner(ctx: Ralph, desk: Desk, *, attempt: int) -> TaskList:
    """One plan. Raises PlanError."""
    options, handed_in = desk.options, list[TaskList]()
    prompt = planner_prompt(options.goal, options.origin, desk.place(), attempt=attempt, problem=ctx.state.plan_problem)
    answer = await ctx.deps.turn(prompt, agent="planner", custom_tools=[plan_tool(handed_in.append)], strict=False)
    return handed_in[-1] if handed_in else plan_in(answer)
