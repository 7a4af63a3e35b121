"""The nodes before the work: prepare the project, then split the goal into tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.terminal import one_line
from atomic.git import find_repository
from atomic.graph import RunStatus, Suspend
from atomic.loading.project_check import CheckCommand
from atomic.providers.environment import GIT_VARIABLES
from atomic.providers.errors import ProviderError
from atomic.questions import Option, Question
from atomic.ralph.check_runs import watch_checks
from atomic.ralph.checkout import Checkout
from atomic.ralph.checks import NOT_EXECUTABLE, NOT_FOUND
from atomic.ralph.evidence import CheckResult
from atomic.ralph.isolated_start import prepare_workspaces, take_baseline
from atomic.ralph.options import PLAN, has_secret, read_list, red_checks_of, refuse_secrets
from atomic.ralph.plan import PlanError, check_in, plan_in, plan_tool, read_plan
from atomic.ralph.prompts import planner_prompt
from atomic.ralph.pull_request import obstacle
from atomic.ralph.run_folder import Ralph, RunFolder, ask_once
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import SessionStore
from atomic.tasks import TaskList, TaskStatus
from atomic.tasks.task import named
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workspaces import View

WITHOUT_CHECK = (
    "not verified by a check: none was found. The run relies on changed files and the review; "
    "--verify COMMAND adds a check"
)
YOLO_WITHOUT_CHECK = (
    "not verified by a check: none was found. The run relies on the agent's promise; --verify COMMAND adds a check"
)
IGNORE = "Ignore it"
GOAL = "It is the goal"
STOP = "Stop"
_MEANINGS = {
    IGNORE.casefold(): "ignore",
    "ignore": "ignore",
    GOAL.casefold(): "goal",
    "goal": "goal",
    STOP.casefold(): "",
}
_ASKED = "asked"  # the number of questions about red checks
_CLOSED = "stops"  # how many of them led to no decision
_REFUSED = "refused"  # the last answer, if it was not one of the options
MAX_OUTPUT = 600  # characters of a red check's output


class NoPlanError(AtomicError):
    """The planner gave no usable plan."""

    code = "no_plan"


async def prepare(ctx: Ralph) -> NodeResult:
    """Choose the checks, run them before anything has changed, and take a snapshot of
    the folder.
    """
    run = RunFolder(ctx)
    run.check_folder()
    if run.options.mode == "tasks":
        _take(run, _with_failed_as_work(run, read_list(Path(run.options.origin))))
    _choose_checks(run)
    _warn_of_variables(run)
    await asyncio.to_thread(_warn_of_others, run)
    branch = None if run.options.dry_run else await prepare_workspaces(ctx, run)
    if branch is not None:
        red = await take_baseline(ctx, run, branch.first)
        if red:
            await _decide(ctx, run, red)
        return NodeResult({"start": await run.snapshot_of(branch.first), "isolated": True})
    if run.workers > 1:
        run.say(
            f"{run.workers} workers share one checkout, which is risky: each sees the half-done work of the "
            "others, a check may fail because of another's work, and changes cannot be assigned to tasks"
        )
    if run.options.pr and (why := await obstacle(run.cwd)):
        run.say(f"there will be no pull request unless you fix this before the end: {why}")
    untouched = await run.snapshots.take()
    await Checkout(run).begin(untouched)
    if run.options.dry_run:
        return NodeResult({"start": untouched})
    again = ctx.attempt > 1
    red, start = await watch_checks(  # the files that checks write are not work
        run, untouched, lambda: run.checks.take_baseline(run.cwd, run.options.gate_timeout, again=again)
    )
    run.checks.note_leftovers(change.path for change in await run.snapshots.changes(untouched, start))
    if red:
        await _decide(ctx, run, red)
    return NodeResult({"start": start})


def _with_failed_as_work(run: RunFolder, tasks: TaskList) -> TaskList:
    """Return the list with failed tasks as pending: a failing feature is work."""
    failed = [task.id for task in tasks.tasks if task.status is TaskStatus.FAILED]
    if not failed:
        return tasks
    run.say(f"tasks: {named(failed)} failed before this run, and will be worked on")
    fresh = [
        msgspec.structs.replace(task, status=TaskStatus.PENDING) if task.status is TaskStatus.FAILED else task
        for task in tasks.tasks
    ]
    return TaskList(fresh, metadata=tasks.metadata, problems=tasks.problems)


def _choose_checks(run: RunFolder) -> None:
    if run.checks.chosen:  # a resume: they are chosen, and files may have changed
        return
    refuse_secrets(run.options.gates, run.redactor)  # it also knows the secrets of the settings and of MCP servers
    run.checks.choose(run.options.gates)
    for check in run.options.gates:
        if check.origin != "--verify":
            run.say(f"check: {check.command} (from {check.origin}; --verify COMMAND chooses another)")
    if not run.options.gates:
        run.say(YOLO_WITHOUT_CHECK if run.options.mode == "yolo" else WITHOUT_CHECK)


def _warn_of_variables(run: RunFolder) -> None:
    """Warn of variables that name a repository.

    Agents and checks get them only if the settings say so.
    """
    if names := sorted(GIT_VARIABLES & os.environ.keys()):
        are = "is" if len(names) == 1 else "are"
        run.say(
            f"{', '.join(names)} {are} set in your environment. Agents and checks do not get that, unless [env] pass "
            f"or [checks] env names it: they work in the repository of {run.cwd}"
        )


def _warn_of_others(run: RunFolder) -> None:
    """Warn of another run in the same checkout."""
    store = SessionStore(run.session.parent.parent)
    here = _checkout(run.cwd)
    for record in store.list():
        is_other = record.id != run.session.name and record.status is SessionStatus.RUNNING and record.cwd
        if is_other and not record.is_conversation and _checkout(Path(record.cwd)) == here:
            run.say(
                f"{record.workflow} {record.id} works in this checkout at the same time: each may damage the work "
                f"of the other, or be credited with it. atomic stop {record.id} pauses it"
            )


def _checkout(folder: Path) -> Path:
    repository = find_repository(folder)
    return folder.resolve() if repository is None else repository.root.resolve()


async def _decide(ctx: Ralph, run: RunFolder, red: Sequence[CheckResult]) -> None:
    """Decide what red checks before the run mean.

    Raises Suspend if the run must stop.
    """
    said = red_checks_of(ctx.deps.config)
    missing = [check for check in red if check.exit_code in (NOT_FOUND, NOT_EXECUTABLE)]
    if not said and run.options.mode == "yolo" and not missing:  # a misspelled command never passes
        said = "goal"
    if not said and (ctx.deps.broker is not None or _is_asked(ctx)):
        said = await _ask_about(ctx, run, red)
    names = " and ".join(check.command for check in red)
    if not said:
        remedy = "" if missing else "--red-checks goal"
        raise Suspend(_stopped(run, red), status=RunStatus.BLOCKED, code="check_red", remedy=remedy)
    for check in missing:
        run.say(_described(check))
    if said == "ignore":
        run.checks.ignore(check.command for check in red)
        run.say(f"{names}: red before the run, and ignored until it passes once")
    else:
        run.say(f"{names}: red before the run; the run is completed only when it is green")


def _is_asked(ctx: Ralph) -> bool:
    """Return whether a question about red checks is open, or was answered while the run
    was paused.

    Older versions recorded only the answer.
    """
    closed = ctx.remembered(_CLOSED, 0)
    return ctx.remembered(_ASKED, 0) > closed or ctx.is_answered(_id_of(closed + 1))


async def _ask_about(ctx: Ralph, run: RunFolder, red: Sequence[CheckResult]) -> str:
    """Ask what red checks mean; an empty result means stop.

    Each question has its own id.
    """
    for check in red:
        if output := _output(check):
            run.say(f"{check.command} printed: {output}")
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


def _question(red: Sequence[CheckResult], number: int, refused: str) -> Question:
    """Return the question without the checks' output: a recorded answer is found by the
    question's text.
    """
    again = f'"{one_line(refused)[:60]}" is not one of the answers. Choose one. ' if refused else ""
    return Question(
        f"{again}{' '.join(_described(check) for check in red)} What should the run do?",
        id=_id_of(number),
        header="Red check",
        options=[
            Option(IGNORE, "work without it; the report mentions that"),
            Option(GOAL, "the run is completed only when it is green"),
            Option(STOP, "nothing has been paid yet"),
        ],
        default=STOP,
    )


def _described(check: CheckResult) -> str:
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


def _output(check: CheckResult) -> str:
    return " ".join(check.output_tail.split())[-MAX_OUTPUT:]


def _stopped(run: RunFolder, red: Sequence[CheckResult]) -> str:
    id = run.session.name
    sentences: list[str] = []
    for check in red:
        sentences.append(_described(check))
        if output := _output(check):
            sentences.append(f'It printed: "{output}".')
    return (
        f"{' '.join(sentences)} Nothing was paid. Fix it and run `atomic resume {id}`, or decide what it means:"
        f" `atomic resume {id} --red-checks goal` (completed only when it is green) or `--red-checks ignore`"
        " (do not count it). For another command start a new run with --verify"
    )


async def plan(ctx: Ralph) -> NodeResult:
    """Ask the planner; after an unusable plan once more, with the reason."""
    run = RunFolder(ctx)
    again = bool(ctx.state.plan_problem)
    try:
        tasks = await _ask_planner(ctx, run, attempt=2 if again else 1)
    except (PlanError, TurnFailedError, ProviderError) as error:
        if not again:
            return NodeResult({"plan_problem": str(error)}, goto=ctx.output_key)
        if isinstance(error, PlanError):
            raise NoPlanError(f"the planner gave no usable plan twice: {error}") from error
        raise
    if not run.checks.chosen and (command := check_in(tasks)):
        _take_check(run, command)
    _take(run, tasks)
    return NodeResult({"planned": True})


def _take_check(run: RunFolder, command: str) -> None:
    """Use the check that the plan names."""
    if has_secret(command, run.redactor):
        run.say(
            f'the check of the plan, "{run.redactor.text(command)}", is not run: it contains a secret, which Atomic '
            "does not store; --verify COMMAND gives a check"
        )
        return
    run.checks.add_late(CheckCommand(command, PLAN))
    run.say(f"check: {command} (named by the plan); it must be green at the end")


def _take(run: RunFolder, tasks: TaskList) -> None:
    """Write the task list, and report problems that do not prevent the work."""
    for problem in tasks.problems:
        run.say(f"tasks: {problem}")
    run.write_tasks(tasks)


async def _ask_planner(ctx: Ralph, run: RunFolder, *, attempt: int) -> TaskList:
    """Ask the planner once. Raises PlanError."""
    options = run.options
    checkout = Checkout(run)
    async with checkout.turn("plan", is_repair=False), run.reading("plan") as view:
        prompt = planner_prompt(
            options.goal, options.origin, run.prompt_context(view), attempt=attempt, problem=ctx.state.plan_problem
        )
        answer, submitted = await ask_once(ctx, tuple[str, list[Any]], lambda: _planner_turn(ctx, prompt, view))
    if checkout.failed is not None:
        run.say(f"the planner changed the checkout: {checkout.failed.reason}")
    return read_plan(submitted[-1]) if submitted else plan_in(answer)


async def _planner_turn(ctx: Ralph, prompt: str, view: View | None) -> tuple[str, list[Any]]:
    """Return the planner's answer and the plans that it submitted."""
    submitted: list[Any] = []
    tools = [plan_tool(submitted.append)]
    answer = await ctx.deps.turn(prompt, agent="planner", custom_tools=tools, strict=False, workspace=view)
    return answer, submitted
