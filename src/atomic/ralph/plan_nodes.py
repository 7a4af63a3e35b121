"""The nodes before the work: prepare the project, then split the goal into tasks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.git import find_repository
from atomic.graph import JournalError
from atomic.loading.project_check import CheckCommand
from atomic.providers.environment import GIT_VARIABLES
from atomic.providers.errors import ProviderError
from atomic.ralph.check_runs import watch_checks
from atomic.ralph.checkout import Checkout
from atomic.ralph.isolated_start import announce, prepare_workspaces, take_baseline
from atomic.ralph.opening import open_run
from atomic.ralph.options import PLAN, has_secret, read_list, refuse_secrets
from atomic.ralph.plan import PlanError, check_in, plan_in, plan_tool, read_plan
from atomic.ralph.prompts import planner_prompt
from atomic.ralph.pull_request import obstacle
from atomic.ralph.red_checks import decide
from atomic.ralph.run_folder import Ralph, RunFolder, ask_once
from atomic.sessions.facts import read_facts
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session, SessionStore
from atomic.tasks import TaskList, TaskStatus
from atomic.tasks.task import named
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workspaces import View, read_branch

WITHOUT_CHECK = (
    "not verified by a check: none was found. The run relies on changed files and the review; "
    "--verify COMMAND adds a check"
)
YOLO_WITHOUT_CHECK = (
    "not verified by a check: none was found. The run relies on the agent's promise; --verify COMMAND adds a check"
)


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
    repository = find_repository(run.cwd)
    # A clone is in a folder of Atomic.
    await run.checks.note_files_above([run.cwd if repository is None else repository.root, run.session])
    branch = None if run.options.dry_run else await prepare_workspaces(ctx, run)
    if branch is not None:
        red = await take_baseline(ctx, run, branch)
        open_run(ctx, run, branch)
        await announce(run, branch)
        if red:
            await decide(ctx, run, red)
        return NodeResult({"start": await run.snapshot_of(branch.first), "isolated": True})
    if not run.options.dry_run:
        await asyncio.to_thread(_warn_of_others, run)
    if run.workers > 1 and not run.options.dry_run:
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
    results, start = await watch_checks(  # the files that checks write are not work
        run, untouched, lambda: run.checks.take_baseline(run.cwd, run.options.gate_timeout, again=again)
    )
    run.checks.note_leftovers(change.path for change in await run.snapshots.changes(untouched, start))
    open_run(ctx, run, None)
    if red := [one for one in results if one.exit_code != 0]:
        await decide(ctx, run, red)
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
            run.inform(f"check: {check.command} (from {check.origin}; --verify COMMAND chooses another)")
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
    """Warn of another run that works in the same checkout itself."""
    store = SessionStore(run.session.parent.parent)
    here = _checkout(run.cwd)
    for record in store.list():
        is_other = record.id != run.session.name and record.status is SessionStatus.RUNNING and record.cwd
        if not is_other or record.is_conversation or _checkout(Path(record.cwd)) != here:
            continue
        if record.config.get("dry_run") is not True and not _has_workspaces(store.find(record.id)):
            run.say(
                f"{record.workflow} {record.id} works in this checkout at the same time: each may damage the work "
                f"of the other, or be credited with it. atomic stop {record.id} pauses it"
            )


def _has_workspaces(session: Session) -> bool:
    try:
        return read_branch(read_facts(session.journal_path, session.id)) is not None
    except JournalError:
        return False


def _checkout(folder: Path) -> Path:
    repository = find_repository(folder)
    return folder.resolve() if repository is None else repository.root.resolve()


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
