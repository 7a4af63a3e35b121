"""The nodes of one task: a picture of the folder, a turn, and the gates on what it left."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atomic.errors import AtomicError
from atomic.git import FileChange, Picture
from atomic.providers.errors import ProviderError
from atomic.tasks import Task
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnCutError, TurnFailedError
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import Evidence, GateResult, diffstat, protected
from atomic.workflows.ralph.prompts import aim_of, gate_trouble, role_of, worker_prompt
from atomic.workflows.ralph.state import MOST_ATTEMPTS, Try

UNCHANGED = "no file has changed, so nothing was done. If nothing has to change, say in the files why, or do the work."


class TaskFailedError(AtomicError):
    """A task was tried as often as it may be."""

    code = "nothing_runnable"


class TaskStuckError(TaskFailedError):
    """A task does not move: nothing changes, or the same error comes again and again."""

    code = "stuck"


async def begin(ctx: Ralph) -> NodeResult:
    """Take a picture of the folder before the task's first turn."""
    desk = Desk(ctx)
    desk.check_folder()
    return NodeResult({"before": {ctx.item.id: await desk.pictures.take()}})


async def work(ctx: Ralph) -> NodeResult:
    """One turn of a worker or fixer; how it ended, and nothing of what it says about itself."""
    desk, task = Desk(ctx), ctx.item
    desk.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    prompt = worker_prompt(
        task,
        desk.place(),
        attempt=len(tries) + 1,
        builds_on=_builds_on(desk, task),
        trouble=tries[-1].trouble if tries else "",
        cut_off=ctx.attempt > 1 or (bool(tries) and tries[-1].cut_off),
        aim=aim_of(desk.options.goal, desk.tasks.tasks) if role_of(task) == "fixer" else "",
    )
    error, is_cut = "", False
    with desk.turn(task.id):
        try:
            await ctx.deps.turn(prompt, agent=role_of(task), strict=False)
        except (TurnFailedError, ProviderError) as failed:
            error, is_cut = str(failed), isinstance(failed, TurnCutError)
    return NodeResult({"broken": {task.id: error}, "cut_off": {task.id: is_cut}})


def _builds_on(desk: Desk, task: Task) -> list[str]:
    known = {one.id: one for one in desk.tasks.tasks}
    proofs = desk.evidence
    lines: list[str] = []
    for id in task.blocked_by:
        if (one := known.get(id)) is not None:
            files = proofs[id].changed_files[:8] if id in proofs else ()
            lines.append(f"{id}: {one.title}" + (f" ({', '.join(files)})" if files else ""))
    return lines


async def gate(ctx: Ralph) -> NodeResult:
    """Run the gates on what the worker left: the task is done, tried again, or has failed."""
    desk, task = Desk(ctx), ctx.item
    desk.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    evidence, failed = await _look(ctx, desk, task, attempt=len(tries) + 1)
    desk.write_evidence(evidence)
    if failed is None:
        return NodeResult()
    tries = [*tries, failed]
    # Who resumes a blocked run gives its tasks another chance: what was tried before does not count.
    forgiven = ctx.state.forgiven.get(task.id, 0) if ctx.attempt == 1 else len(tries)
    if len(tries) - forgiven >= MOST_ATTEMPTS:
        raise _given_up(tries[forgiven:], evidence.reason)
    desk.say(f"attempt {len(tries)} was not enough: {evidence.reason}; back to the {role_of(task)}")
    return NodeResult({"tries": {task.id: tries}, "forgiven": {task.id: forgiven}}, goto="work")


async def _look(ctx: Ralph, desk: Desk, task: Task, *, attempt: int) -> tuple[Evidence, Try | None]:
    state = ctx.state
    before, after = state.before[task.id], await desk.pictures.take()
    changes = await desk.pictures.changes(before, after)
    error = state.broken.get(task.id, "")
    results: Sequence[GateResult] = ()
    if error:
        failed = Try("error", f"The turn did not end well: {error}", cut_off=state.cut_off.get(task.id, False))
        reason = error
    elif not (changes or before.head != after.head or task.metadata.get("no_change") is True):
        failed, reason = Try("unchanged", f"When your turn had ended, {UNCHANGED}"), "no file has changed"
    else:
        results = await desk.book.check(desk.cwd, desk.options.gate_timeout)
        red = [result for result in results if result.blocking and result.exit_code != 0]
        failed, reason = (Try("gate", gate_trouble(red)), said_of(red)) if red else (None, "")
    return await evidence_of(desk, task.id, attempt, (before, after), changes, results, reason), failed


async def evidence_of(
    desk: Desk,
    task: str,
    attempt: int,
    pictures: tuple[Picture, Picture],
    changes: Sequence[FileChange],
    results: Sequence[GateResult],
    reason: str,
) -> Evidence:
    """What is known of one attempt, whatever anybody says of it."""
    before, after = pictures
    # Where several share the checkout nobody can tell whose it is.
    is_told = before.head != after.head and desk.options.workers == 1
    loose = await desk.pictures.uncommitted(after) if is_told else frozenset[str]()
    return Evidence(
        task=task,
        attempt=attempt,
        status="failed" if reason else "passed",
        gates=tuple(results),
        commit=after.head,
        tree=after.tree,
        changed_files=tuple(one.path for one in changes),
        diffstat=diffstat(changes),
        protected_files=tuple(protected(changes, [gate.command for gate in desk.book.gates])),
        reason=reason,
        uncommitted=tuple(one.path for one in changes if one.path in loose),
    )


def said_of(results: Sequence[GateResult]) -> str:
    """How gates ended, in one line."""
    return "; ".join(
        f"{one.command} " + ("took too long" if one.timed_out else f"ended with exit code {one.exit_code}")
        for one in results
    )


def same_words(error: str) -> str:
    """An error as it is compared with another: a process, a time or a line has another number each time."""
    return re.sub(r"\d+", "#", error)


def _given_up(tries: Sequence[Try], reason: str) -> TaskFailedError:
    kinds, words = {one.kind for one in tries}, {same_words(one.trouble) for one in tries}
    if kinds == {"unchanged"}:
        return TaskStuckError(f"{len(tries)} attempts changed no file")
    if kinds == {"error"} and len(words) == 1:
        return TaskStuckError(f"{len(tries)} turns ended with the same error: {reason}")
    return TaskFailedError(f"not done after {len(tries)} attempts: {reason}")
