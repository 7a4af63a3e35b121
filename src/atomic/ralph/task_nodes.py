"""The nodes of one task: a turn, and the checks after it."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from atomic.base.errors import AtomicError
from atomic.git import FileChange, FolderSnapshot
from atomic.graph import Postpone, Suspend
from atomic.providers.errors import ProviderError
from atomic.ralph.changed_tests import protected, steering
from atomic.ralph.check_runs import (
    check_tree,
    check_with_former_files,
    deleted_by_checks,
    is_known_green,
    look_for_check,
    repair_task,
    said_of,
)
from atomic.ralph.checkout import Checkout
from atomic.ralph.evidence import CheckResult, Evidence, diffstat
from atomic.ralph.prompts import aim_of, check_output, is_check_repair, role_of, worker_prompt
from atomic.ralph.run_folder import Ralph, RunFolder, ask_once
from atomic.ralph.state import MAX_ATTEMPTS, Span, Try
from atomic.ralph.turn_changes import changes_of, has_committed, has_moved, joined, watch_turn
from atomic.tasks import Task
from atomic.workflows import END, NodeResult
from atomic.workflows.errors import TurnCutError, TurnFailedError
from atomic.workspaces import View

UNCHANGED = (
    "no file has changed, so nothing counts as done. Do the work. If it cannot be done, or is done already, change no"
    " file and end your answer with the reason: the user reads it in the report."
)


class TaskFailedError(AtomicError):
    """A task has no attempts left."""

    code = "nothing_runnable"


class TaskStuckError(TaskFailedError):
    """A task makes no progress: no file changes, or the same error repeats."""

    code = "stuck"


class ChecksRedError(TaskFailedError):
    """The checks stay red after all repairs: no other task can begin."""

    code = "check_red"
    decisive = True


async def begin(ctx: Ralph) -> NodeResult:
    """Run the checks before a worker begins: this task did not cause a failure then.

    Raises Postpone if they are red: a repair comes first. A repair ends here if they
    are green.
    """
    run = RunFolder(ctx)
    task = ctx.item
    state = ctx.state
    run.check_folder()
    if is_check_repair(task):
        return await _begin_repair(ctx, run, task)
    tried = bool(state.tries.get(task.id))  # then the task may have made the checks red
    if tried or run.others_work(task.id):
        return NodeResult()
    now = await run.snapshots.take()
    await Checkout(run).note_undone(now)
    has_blocking = any(map(run.checks.is_blocking, run.checks.commands))
    if not has_blocking or await is_known_green(run, state, now):
        return NodeResult()
    checked = await check_tree(run, now=now)
    if checked.red:
        run.say(f"{said_of(checked.red)} before task {task.id} begins: it is repaired first")
        raise Postpone([repair_task(run, checked.red)])
    return NodeResult({"checked": {task.id: checked.after}} if checked.is_green(run) else {})


async def _begin_repair(ctx: Ralph, run: RunFolder, task: Task) -> NodeResult:
    checked = await check_tree(run)
    if checked.missing(run):
        return NodeResult()
    spans = ctx.state.spans.get(task.id, [])
    attempt = len(ctx.state.tries.get(task.id, [])) + 1
    run.write_evidence(await evidence_of(run, task.id, attempt, spans, checked.after, checked.results, ""))
    return NodeResult({"checked": {task.id: checked.after}}, goto=END)


async def work(ctx: Ralph) -> NodeResult:
    """Run one turn of a worker or fixer, and record how it ended."""
    run = RunFolder(ctx)
    task = ctx.item
    run.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    checkout = Checkout(run)
    # One attempt may undo what another has moved. After that the run pauses: the user
    # may have moved it.
    puts_back = [one.kind == "git" for one in tries[-2:]] in ([True], [False, True])
    with begun(ctx, task), run.turn(task.id):
        async with checkout.turn(task.id, is_repair=puts_back):
            prompt = worker_prompt(
                task,
                run.prompt_context(),
                attempt=len(tries) + 1,
                builds_on=builds_on(run, task),
                trouble=tries[-1].trouble if tries else "",
                said=tries[-1].said if tries else "",
                cut_off=ctx.attempt > 1 or (bool(tries) and tries[-1].cut_off),
                aim=aim_of(run.options.goal, run.tasks.tasks) if role_of(task) == "fixer" else "",
            )
            ended, spans = await watch_turn(ctx, run, lambda: ask(ctx, prompt, role_of(task)))
    spans = joined([*ctx.state.spans.get(task.id, ()), *spans])
    return NodeResult(
        {
            "broken": {task.id: ended.error},
            "cut_off": {task.id: ended.is_cut},
            "said": {task.id: run.last_words(ended.text)},
            "misplaced": {task.id: checkout.failed},
            "spans": {task.id: spans},
        }
    )


@contextmanager
def begun(ctx: Ralph, task: Task) -> Generator[None]:
    """Mark a pause as begun after the first turn: a pause before it leaves the task
    pending.
    """
    try:
        yield
    except Suspend as pause:
        pause.begun = pause.begun or bool(ctx.state.spans.get(task.id))
        raise


class Ended(NamedTuple):
    """How a turn ended: the agent's last message, the error, and whether a limit
    interrupted it.
    """

    text: str
    error: str = ""
    is_cut: bool = False


async def ask(ctx: Ralph, prompt: str, role: str, view: View | None = None) -> Ended:
    """Run one turn of a worker or fixer, unless its answer is in the journal."""
    return await ask_once(ctx, Ended, lambda: _ask(ctx, prompt, role, view))


async def _ask(ctx: Ralph, prompt: str, role: str, view: View | None) -> Ended:
    try:
        return Ended(await ctx.deps.turn(prompt, agent=role, strict=False, workspace=view))
    except TurnFailedError as failed:
        return Ended(failed.said, str(failed), isinstance(failed, TurnCutError))
    except ProviderError as failed:
        return Ended("", str(failed))


def builds_on(run: RunFolder, task: Task) -> list[str]:
    known = {one.id: one for one in run.tasks.tasks}
    proofs = run.evidence
    lines: list[str] = []
    for id in task.blocked_by:
        if (one := known.get(id)) is not None:
            files = proofs[id].changed_files[:8] if id in proofs else ()
            lines.append(f"{id}: {one.title}" + (f" ({', '.join(files)})" if files else ""))
    return lines


async def check_turn(ctx: Ralph) -> NodeResult:
    """Run the checks after the turn: the task is done, tried again, or given up.

    In a workspace of their own they need no worker: another task begins meanwhile.
    """
    if ctx.state.isolated:
        ctx.free_worker()
    run = RunFolder(ctx)
    task = ctx.item
    run.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    await Checkout(run).require_repository()
    await look_for_check(ctx, run)
    evidence, failed, green = await _examine(ctx, run, task, attempt=len(tries) + 1)
    run.write_evidence(evidence)
    run.note(task.id, result_line(evidence))
    if failed is None:
        checked = {"checked": {task.id: green}} if green is not None else {}
        return NodeResult(checked, goto="merge" if ctx.state.isolated else END)
    returned = ctx.state.returned.get(task.id)
    shown = "" if returned is None else returned.shown
    tries = [*tries, msgspec.structs.replace(failed, said=ctx.state.said.get(task.id, ""), shown=shown)]
    update: dict[str, Any] = {"tries": {task.id: tries}, "returned": {task.id: None}}
    most = MAX_ATTEMPTS + ctx.state.forgiven.get(task.id, 0)  # a resume gives as many again
    if len(tries) >= most:
        return NodeResult(update, goto="give-up")
    run.say(f"task {task.id}: attempt {len(tries)} of {most} failed: {evidence.reason}; trying again")
    return NodeResult(update, goto="work")


async def give_up(ctx: Ralph) -> NodeResult:
    """Fail the task. A resume gives it as many attempts again."""
    id = ctx.item.id
    tries = ctx.state.tries.get(id, [])
    if ctx.attempt > 1:
        return NodeResult({"forgiven": {id: len(tries)}, "merges": {id: 0}, "returned": {id: None}}, goto="begin")
    if ctx.state.isolated:
        await ctx.deps.workspaces.remove(id)  # each turn was parked at its end
    unmerged = ctx.state.returned.get(id)
    if unmerged is not None:
        raise TaskFailedError(f"not merged after {ctx.state.merges.get(id, 0)} attempts: {unmerged.reason}")
    raise _given_up(ctx.item, tries[ctx.state.forgiven.get(id, 0) :])


async def _examine(
    ctx: Ralph, run: RunFolder, task: Task, *, attempt: int
) -> tuple[Evidence, Try | None, FolderSnapshot | None]:
    """Return the evidence of an attempt, what was missing, and a snapshot if all checks
    are green on it.
    """
    state = ctx.state
    green: FolderSnapshot | None = None
    spans = state.spans[task.id]
    now = spans[-1].after if state.isolated else await run.snapshots.take()
    changes = await changes_of(run.snapshots, spans)
    error = state.broken.get(task.id, "")
    misplaced = state.misplaced.get(task.id)
    results: Sequence[CheckResult] = ()
    rewritten: Sequence[str] = ()
    tree_after = ""
    if misplaced is not None:
        reason = misplaced.reason
        failed = misplaced
    elif error:
        reason = error
        failed = Try("error", f"The turn did not end well: {error}", reason, state.cut_off.get(task.id, False))
    elif not (changes or await has_committed(run, spans) or task.metadata.get("no_change") is True):
        reason = "no file has changed"
        failed = Try("unchanged", f"When your turn had ended, {UNCHANGED}", reason)
    else:
        own = [one.path for one in changes if one.status != "deleted"]
        checked = await check_tree(run, now=now, work=own)
        results = checked.results
        rewritten = checked.rewritten
        tree_after = checked.tree_after
        red = checked.missing(run) if is_check_repair(task) else checked.red
        reason = said_of(red)
        failed = Try("gate", check_output(red), reason) if red else None
        # Files that were deleted before this turn are not blamed on it; the end of the run is.
        gone = [path for path in await deleted_by_checks(run) if path in {*own, *checked.deleted}]
        if failed is None and gone:
            reason = f"the checks deleted {', '.join(gone[:5])}"
            advice = "Restore the files of the work, and change what deletes them."
            failed = Try("gate", f"When your turn had ended, {reason}. {advice}", reason)
        green = checked.after if failed is None and checked.is_green(run) else None
    evidence = await evidence_of(run, task.id, attempt, spans, now, results, reason)
    evidence = msgspec.structs.replace(evidence, tree_after=tree_after, rewritten=rewritten)
    if state.isolated and evidence.steering_files and failed is None and now.head and evidence.base:
        former = await check_with_former_files(run, now.head, evidence.base, evidence.steering_files)
        evidence = msgspec.structs.replace(evidence, former_checks=tuple(former))
    return evidence, failed, green


async def evidence_of(
    run: RunFolder,
    task: str,
    attempt: int,
    spans: Sequence[Span],
    now: FolderSnapshot,
    results: Sequence[CheckResult],
    reason: str,
) -> Evidence:
    """Return the evidence of one attempt."""
    changes = await changes_of(run.snapshots, spans)
    uncommitted = frozenset[str]()
    if (
        has_moved(spans) and run.workers == 1 and not run.is_isolated
    ):  # with several workers the owner of a file is not known
        uncommitted = await run.snapshots.uncommitted(now)
    return Evidence(
        task=task,
        attempt=attempt,
        status="failed" if reason else "passed",
        checks=tuple(results),
        commit=now.head,
        tree=now.tree,
        changed_files=tuple(one.path for one in changes),
        diffstat=diffstat(changes),
        protected_files=tuple(await _protected(run, task, changes, spans)),
        reason=reason,
        steering_files=tuple(await _steering(run, now, changes)),
        uncommitted=tuple(one.path for one in changes if one.path in uncommitted),
        base=spans[0].before.head if spans and run.is_isolated else None,
        base_tree=spans[0].before.tree if spans and run.is_isolated else "",
    )


async def _protected(run: RunFolder, task: str, changes: Sequence[FileChange], spans: Sequence[Span]) -> list[str]:
    """Return the changed files that decide about checks, including files that git
    ignores, or would ignore.
    """
    found = {*protected(changes, run.checks.commands), *Checkout(run).hidden.changed_by(task)}
    for span in spans if run.is_isolated else ():
        if span.before.head and span.after.head:
            found.update(await run.workspaces.ignored_files(span.before.head, span.after.head))
    return sorted(found)


async def _steering(run: RunFolder, now: FolderSnapshot, changes: Sequence[FileChange]) -> list[str]:
    """Return the files that decide what the checks do, were changed by the task, and are
    not as before the run.
    """
    if run.start is None:
        return []
    own = {one.path for one in changes} - {*run.checks.leftovers}  # without files that checks write
    since_start = await run.snapshots.changes(run.start, now)
    return steering([one for one in since_start if one.path in own], run.checks.commands)


def result_line(evidence: Evidence) -> str:
    """Return the result of an attempt, in one line."""
    result = f"failed: {evidence.reason}" if evidence.reason else "done"
    green = [one for one in evidence.checks if one.exit_code == 0]
    facts = [f"{one.command} passed in {one.seconds:.1f}s" for one in green]
    facts.append(f"{evidence.diffstat.files} files changed")
    if evidence.commit is not None:
        facts.append(f"HEAD {evidence.commit[:10]}")
    return f"attempt {evidence.attempt}, {result} ({', '.join(facts)})"


def same_words(error: str) -> str:
    """Return an error for comparison, without numbers, which differ each time."""
    return re.sub(r"\d+", "#", error)


def _given_up(task: Task, tries: Sequence[Try]) -> TaskFailedError:
    if is_check_repair(task):
        seen = [one.reason for one in tries if one.kind == "gate"]
        red = seen[-1] if seen else str(task.metadata.get("red", tries[-1].reason))
        return ChecksRedError(
            f"the checks are still red after {len(tries)} attempts: {red}. The report has the end of the output"
        )
    kinds = {one.kind for one in tries}
    words = {same_words(one.trouble) for one in tries}
    if kinds == {"unchanged"}:
        return TaskStuckError(f"{len(tries)} attempts changed no file")
    if kinds == {"error"} and len(words) == 1:
        return TaskStuckError(f"{len(tries)} turns ended with the same error: {tries[-1].reason}")
    return TaskFailedError(f"not done after {len(tries)} attempts: {tries[-1].reason}")
