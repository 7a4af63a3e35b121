"""The nodes before the work: look at the project, then cut the goal into tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.errors import AtomicError
from atomic.git import find_repository
from atomic.graph import RunStatus, Suspend
from atomic.providers.environment import GIT_VARIABLES
from atomic.providers.errors import ProviderError
from atomic.questions import Option, Question
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import SessionStore
from atomic.tasks import TaskList, TaskStatus
from atomic.tasks.task import named
from atomic.terminal import one_line
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.project_gate import Gate
from atomic.workflows.ralph.calls import ask_once
from atomic.workflows.ralph.checking import watch_checks
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import GateResult
from atomic.workflows.ralph.gates import NOT_EXECUTABLE, NOT_FOUND
from atomic.workflows.ralph.options import PLAN, has_secret, read_list, red_checks_of, refuse_secrets
from atomic.workflows.ralph.plan import PlanError, check_in, plan_in, plan_tool, read_plan
from atomic.workflows.ralph.prompts import planner_prompt
from atomic.workflows.ralph.publishing import obstacle

WITHOUT_GATE = (
    "not verified by a check: none was found. The run relies on changed files and the review; "
    "--verify COMMAND adds a check"
)
YOLO_WITHOUT_GATE = (
    "not verified by a check: none was found. The run relies on the agent's promise; --verify COMMAND adds a check"
)
IGNORE, GOAL, STOP = "Ignore it", "It is the goal", "Stop"
_MEANINGS = {
    IGNORE.casefold(): "ignore",
    "ignore": "ignore",
    GOAL.casefold(): "goal",
    "goal": "goal",
    STOP.casefold(): "",
}
_ASKED, _CLOSED = "asked", "stops"  # how many questions about red checks were asked, and how many led to no decision
_REFUSED = "refused"  # the last answer, where it was none
MOST_WORDS = 600  # characters of what a red check said


class NoPlanError(AtomicError):
    """There is no plan that could be worked on."""

    code = "no_plan"


async def prepare(ctx: Ralph) -> NodeResult:
    """Choose the gates, see which are red before anything has changed, and take a picture of the folder."""
    desk = Desk(ctx)
    desk.check_folder()
    if desk.options.mode == "tasks":
        _take(desk, _with_failed_as_work(desk, read_list(Path(desk.options.origin))))
    _choose_gates(desk)
    _warn_of_variables(desk)
    await asyncio.to_thread(_warn_of_others, desk)
    if desk.options.workers > 1:
        desk.say(
            f"{desk.options.workers} workers share one checkout, which is risky: each sees the half-done work of the "
            "others, a check may fail because of another's work, and changes cannot be told apart"
        )
    if desk.options.pr and (why := await obstacle(desk.cwd)):
        desk.say(f"there will be no pull request unless you help before the end: {why}")
    untouched = await desk.pictures.take()
    await Checkout(desk).begin(untouched)
    if desk.options.dry_run:
        return NodeResult({"start": untouched})
    again = ctx.attempt > 1
    red, start = await watch_checks(  # checks leave caches, which nobody has worked on
        desk, untouched, lambda: desk.book.take_baseline(desk.cwd, desk.options.gate_timeout, again=again)
    )
    desk.book.note_leftovers(change.path for change in await desk.pictures.changes(untouched, start))
    if red:
        await _decide(ctx, desk, red)
    return NodeResult({"start": start})


def _with_failed_as_work(desk: Desk, tasks: TaskList) -> TaskList:
    """Return a list in which what failed before the run is to be done: a failing feature is work, not an obstacle."""
    failed = [task.id for task in tasks.tasks if task.status is TaskStatus.FAILED]
    if not failed:
        return tasks
    desk.say(f"tasks: {named(failed)} failed before this run, and will be worked on")
    fresh = [
        msgspec.structs.replace(task, status=TaskStatus.PENDING) if task.status is TaskStatus.FAILED else task
        for task in tasks.tasks
    ]
    return TaskList(fresh, metadata=tasks.metadata, problems=tasks.problems)


def _choose_gates(desk: Desk) -> None:
    if desk.book.gates:  # a resume: they were chosen, and files may have changed since
        return
    refuse_secrets(desk.options.gates, desk.redactor)  # it also knows the secrets of the settings and of MCP servers
    desk.book.choose(desk.options.gates)
    for gate in desk.options.gates:
        if gate.origin != "--verify":
            desk.say(f"check: {gate.command} (from {gate.origin}; --verify COMMAND chooses another)")
    if not desk.options.gates:
        desk.say(YOLO_WITHOUT_GATE if desk.options.mode == "yolo" else WITHOUT_GATE)


def _warn_of_variables(desk: Desk) -> None:
    """Say which variables name a repository; agents and checks do not get them unless the settings say so."""
    if names := sorted(GIT_VARIABLES & os.environ.keys()):
        many = "is" if len(names) == 1 else "are"
        desk.say(
            f"{', '.join(names)} {many} set in your environment. Agents and checks do not get that, unless [env] pass "
            f"or [checks] env names it: they work in the repository of {desk.cwd}"
        )


def _warn_of_others(desk: Desk) -> None:
    """Say that another run works in the same checkout."""
    store = SessionStore(desk.session.parent.parent)
    here = _checkout(desk.cwd)
    for record in store.list():
        is_other = record.id != desk.session.name and record.status is SessionStatus.RUNNING and record.cwd
        if is_other and not record.is_conversation and _checkout(Path(record.cwd)) == here:
            desk.say(
                f"{record.workflow} {record.id} works in this checkout at the same time: each may spoil or be credited "
                f"with the work of the other. atomic stop {record.id} pauses it"
            )


def _checkout(folder: Path) -> Path:
    repository = find_repository(folder)
    return folder.resolve() if repository is None else repository.root.resolve()


async def _decide(ctx: Ralph, desk: Desk, red: Sequence[GateResult]) -> None:
    """Learn what checks mean that are red before the run. Raises Suspend where the run is to stop."""
    said = red_checks_of(ctx.deps.config)
    missing = [check for check in red if check.exit_code in (NOT_FOUND, NOT_EXECUTABLE)]
    if not said and desk.options.mode == "yolo" and not missing:  # no work turns a misspelled command green
        said = "goal"
    if not said and (ctx.deps.broker is not None or _is_asked(ctx)):
        said = await _ask_about(ctx, desk, red)
    names = " and ".join(check.command for check in red)
    if not said:
        remedy = "" if missing else "--red-checks goal"
        raise Suspend(_stopped(desk, red), status=RunStatus.BLOCKED, code="check_red", remedy=remedy)
    for check in missing:
        desk.say(_described(check))
    if said == "ignore":
        desk.book.ignore(check.command for check in red)
        desk.say(f"{names}: red before the run, and ignored until it passes once")
    else:
        desk.say(f"{names}: red before the run; the run is completed only when it is green")


def _is_asked(ctx: Ralph) -> bool:
    """Return whether a question about red checks is open, or was answered since it paused the run.

    Older versions did not remember that they had asked: there only the answer is known.
    """
    closed = ctx.remembered(_CLOSED, 0)
    return ctx.remembered(_ASKED, 0) > closed or ctx.is_answered(_id_of(closed + 1))


async def _ask_about(ctx: Ralph, desk: Desk, red: Sequence[GateResult]) -> str:
    """Return what a person says that red checks mean; empty: stop. Each question has an id of its own."""
    for check in red:
        if words := _last_words(check):
            desk.say(f"{check.command} says: {words}")
    while True:
        number = ctx.remembered(_CLOSED, 0) + 1
        await ctx.remember(_ASKED, number)
        refused = ctx.remembered(_REFUSED, "")
        answer = str(await ctx.ask(_question(red, number, refused))).strip()
        said = _MEANINGS.get(answer.casefold())
        if said:
            return said
        await ctx.remember(_REFUSED, answer if said is None else "")
        await ctx.remember(_CLOSED, number)
        if said is not None:
            return ""


def _id_of(number: int) -> str:
    return f"red-check-{number}"


def _question(red: Sequence[GateResult], number: int, refused: str) -> Question:
    """Return the question without what the checks said: a recorded answer is found by the question's text."""
    again = f'"{one_line(refused)[:60]}" does not say what to do: choose one of the answers. ' if refused else ""
    return Question(
        f"{again}{' '.join(_described(check) for check in red)} What should the run do?",
        id=_id_of(number),
        header="Red check",
        options=[
            Option(IGNORE, "work without it; the report says so"),
            Option(GOAL, "the run is completed only when it is green"),
            Option(STOP, "nothing has been paid yet"),
        ],
        default=STOP,
    )


def _described(check: GateResult) -> str:
    """Return a sentence about a check that did not work before the run."""
    if check.timed_out:
        return f"Before the run, the check `{check.command}` took too long."
    if check.exit_code == NOT_FOUND:
        return (
            f"Before the run, the check `{check.command}` was not found (exit code {NOT_FOUND}): its name may be"
            " misspelled, or the program is not installed."
        )
    if check.exit_code == NOT_EXECUTABLE:
        return f"Before the run, the check `{check.command}` could not be executed (exit code {NOT_EXECUTABLE})."
    return f"Before the run, the check `{check.command}` is red (exit code {check.exit_code})."


def _last_words(check: GateResult) -> str:
    return " ".join(check.output_tail.split())[-MOST_WORDS:]


def _stopped(desk: Desk, red: Sequence[GateResult]) -> str:
    id = desk.session.name
    described = " ".join(
        _described(check) + (f' It says: "{words}".' if (words := _last_words(check)) else "") for check in red
    )
    return (
        f"{described} Nothing was paid. Fix it and run `atomic resume {id}`, or say what it means:"
        f" `atomic resume {id} --red-checks goal` (completed only when it is green) or `--red-checks ignore`"
        " (do not count it). For another command start a new run with --verify"
    )


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
    if not desk.book.gates and (command := check_in(tasks)):
        _take_check(desk, command)
    _take(desk, tasks)
    return NodeResult({"planned": True})


def _take_check(desk: Desk, command: str) -> None:
    """Use the check that the plan names."""
    if has_secret(command, desk.redactor):
        desk.say(
            f'the check of the plan, "{desk.redactor.text(command)}", is not run: it contains a secret, which Atomic '
            "does not store; --verify COMMAND gives a check"
        )
        return
    desk.book.add_late(Gate(command, PLAN))
    desk.say(f"check: {command} (named by the plan); it must be green at the end")


def _take(desk: Desk, tasks: TaskList) -> None:
    """Work on these; what is wrong with them, and keeps nobody from working, is said."""
    for problem in tasks.problems:
        desk.say(f"tasks: {problem}")
    desk.write_tasks(tasks)


async def _ask_planner(ctx: Ralph, desk: Desk, *, attempt: int) -> TaskList:
    """One plan. Raises PlanError."""
    options = desk.options
    prompt = planner_prompt(options.goal, options.origin, desk.place(), attempt=attempt, problem=ctx.state.plan_problem)
    checkout = Checkout(desk)
    async with checkout.turn("plan", is_repair=False):
        answer, handed_in = await ask_once(ctx, tuple[str, list[Any]], lambda: _planner_turn(ctx, prompt))
    if checkout.failed is not None:
        desk.say(f"the planner changed the checkout: {checkout.failed.reason}")
    return read_plan(handed_in[-1]) if handed_in else plan_in(answer)


async def _planner_turn(ctx: Ralph, prompt: str) -> tuple[str, list[Any]]:
    """Return the planner's answer and the plans that it handed in."""
    handed_in: list[Any] = []
    answer = await ctx.deps.turn(prompt, agent="planner", custom_tools=[plan_tool(handed_in.append)], strict=False)
    return answer, handed_in
