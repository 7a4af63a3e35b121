"""The nodes of `--yolo`: the same prompt in fresh contexts, until the agent gives its
promise and the checks pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from atomic.base.terminal import one_line
from atomic.graph import RunStatus, Suspend
from atomic.ralph.check_runs import (
    MAX_RUNS,
    check_tree,
    deleted_by_checks,
    deleting,
    look_for_check,
    moving,
    said_of,
)
from atomic.ralph.checkout import Checkout
from atomic.ralph.evidence import CheckResult
from atomic.ralph.isolated_tasks import misplaced
from atomic.ralph.prompts import PROMISE, check_output, yolo_prompt
from atomic.ralph.run_folder import Ralph, RunFolder, has_answer
from atomic.ralph.state import Halt, RalphState, Span, Try
from atomic.ralph.task_nodes import Ended, ask, evidence_of, same_words
from atomic.ralph.turn_changes import changes_of, has_committed, joined, watch_turn
from atomic.workflows import NodeResult
from atomic.workflows.task_loop import ends_with_signal
from atomic.workspaces import Conflict, View

TASK = "yolo"  # the name of its evidence
STUCK = 3  # turns without a changed file, or with the same error
STUCK_IN_SILENCE = 6  # promises that are denied by checks that print nothing, so that progress cannot be seen


async def turn(ctx: Ralph) -> NodeResult:
    """Run one turn in a fresh context."""
    run = RunFolder(ctx)
    state = ctx.state
    run.check_folder()
    number = state.iteration + 1
    checkout = Checkout(run)
    with run.turn():
        if state.isolated:
            ended, spans, failed = await _isolated_turn(ctx, run, number)
        else:
            async with checkout.turn(TASK, is_repair=state.misplaced.get(TASK) is not None):
                prompt = _prompt(ctx, run, number, None)
                ended, spans = await watch_turn(ctx, run, lambda: ask(ctx, prompt, "worker"))
            failed = checkout.failed
    error = ended.error
    if failed is not None:
        error = failed.reason
    again = bool(error) and same_words(error) == same_words(state.last_error)
    in_row = state.errors_in_row + 1 if again else int(bool(error))
    changed = bool(await changes_of(run.snapshots, spans)) or await has_committed(run, spans)
    return NodeResult(
        {
            "iteration": number,
            "answer": "" if error else ended.text,
            "said": {TASK: run.last_words(ended.text)},
            "cut_off": {TASK: ended.is_cut},
            "last_error": error,
            "errors_in_row": in_row,
            "unchanged_in_row": 0 if changed else state.unchanged_in_row + 1,
            "misplaced": {TASK: failed},
            "spans": {TASK: joined([*state.spans.get(TASK, ()), *spans])},
        }
    )


def _prompt(ctx: Ralph, run: RunFolder, number: int, view: View | None) -> str:
    state = ctx.state
    return yolo_prompt(
        run.options.goal,
        run.prompt_context(view),
        attempt=number,
        trouble=state.trouble,
        said=state.said.get(TASK, ""),
        cut_off=ctx.attempt > 1 or state.cut_off.get(TASK, False),
    )


async def _isolated_turn(ctx: Ralph, run: RunFolder, number: int) -> tuple[Ended, list[Span], Try | None]:
    """Run one turn in the workspace of the run, and move the run's branch to its result.

    Return also what prevents that move; the next turn must repair it.
    """
    tip = await run.tip()
    message = f"{one_line(run.options.goal)[:60]}\n\nAtomic-Turn: {number}"
    async with ctx.deps.workspace(TASK, message=message, start=tip, attempt=number, keep=True) as workspace:
        prompt = "" if has_answer(ctx) else _prompt(ctx, run, number, workspace.view)
        ended = await ask(ctx, prompt, "worker", workspace.view)
    work = workspace.work
    if not work.unfinished:
        await run.workspaces.settle(TASK, work.commit)
    failed = await misplaced(run, work)
    if failed is not None:
        return ended, [], failed
    merged = await ctx.deps.merge(work)
    if isinstance(merged, Conflict):
        paths = ", ".join(merged.paths[:5])
        raise Suspend(f"The branch of the run has moved, and turn {number} conflicts in {paths}", code="branch_changed")
    return ended, [Span(await run.snapshot_of(tip), await run.snapshot_of(work.commit))], None


async def look(ctx: Ralph) -> NodeResult:
    """Decide whether the promise was kept.

    If not, write the next prompt, or halt if the work is stuck.
    """
    run = RunFolder(ctx)
    state = ctx.state
    run.check_folder()
    await Checkout(run).require_repository()
    facts: dict[str, Any] = {"answer": ""}
    red: list[CheckResult] = []
    denials = 0
    failed = state.misplaced.get(TASK)
    reason = ""
    if failed is not None:
        trouble = failed.trouble
        reason = failed.reason
    elif state.last_error:
        trouble = f"The turn did not end well: {state.last_error}"
        reason = f"the turn did not end well: {state.last_error}"
    elif not ends_with_signal(state.answer, PROMISE):
        trouble = ""
        reason = "the agent has not given its promise"
    elif not (red := await _denied(ctx, run)):
        if state.isolated:
            await run.workspaces.remove(TASK)  # each turn was parked at its end
        return NodeResult({**facts, "over": True})
    else:
        denial = _denial(red)
        denials = state.denials_in_row + 1 if denial == state.denial else 1
        facts |= {"denial": denial, "denials_in_row": denials}
        trouble = f"You promised that all is done, but checks fail.\n\n{check_output(red)}"
    if reason:  # the run may pause before the next turn, and its report needs this evidence
        now = await run.current()
        run.write_evidence(await evidence_of(run, TASK, state.iteration, state.spans[TASK], now, (), reason))
    return NodeResult({**facts, "trouble": trouble, "halt": _stuck(state) or _denied_again(denials, red)})


async def _denied(ctx: Ralph, run: RunFolder) -> list[CheckResult]:
    """Return the red checks that deny the promise.

    Raises Suspend if the files keep changing.
    """
    state = ctx.state
    await look_for_check(ctx, run)
    own = [one.path for one in await changes_of(run.snapshots, state.spans[TASK]) if one.status != "deleted"]
    checked = await check_tree(run, runs=MAX_RUNS, work=own)
    if checked.moved:
        raise Suspend(moving(checked.moved, "while the checks ran"), status=RunStatus.BLOCKED, code="moving_tree")
    if ctx.attempt == 1 and (gone := await deleted_by_checks(run)):  # after a resume the user knows
        raise Suspend(deleting(gone), status=RunStatus.BLOCKED, code="moving_tree")
    red = checked.missing(run)
    reason = f"the promise does not hold: {said_of(red)}" if red else ""
    spans = state.spans[TASK]
    run.write_evidence(await evidence_of(run, TASK, state.iteration, spans, checked.after, checked.results, reason))
    return red


def _denial(red: Sequence[CheckResult]) -> str:
    """Return the output of the checks for comparison, without durations, which differ
    each time.
    """
    outputs = [f"{check.command} {check.exit_code} {check.output_tail}" for check in red]
    return re.sub(r"\d+\.\d+", "#", "\n".join(outputs))


def _denied_again(denials: int, red: Sequence[CheckResult]) -> Halt | None:
    is_silent = not all(check.output_tail.strip() for check in red)
    if denials < (STUCK_IN_SILENCE if is_silent else STUCK):
        return None
    hint = "Let the check print what is wrong" if is_silent else "The report has the end of the output"
    return Halt("stuck", f"{denials} promises were denied by the same error: {said_of(red)}. {hint}")


def _stuck(state: RalphState) -> Halt | None:
    if state.errors_in_row >= STUCK:
        return Halt("stuck", f"{state.errors_in_row} turns ended with the same error: {state.last_error}")
    if state.unchanged_in_row >= STUCK:
        return Halt("stuck", f"{state.unchanged_in_row} turns changed no file and kept no promise")
    return None


async def rest(ctx: Ralph) -> NodeResult:
    """Wait for the user if the work is stuck; a resume gives three more turns."""
    found = ctx.state.halt
    if found is None:
        return NodeResult()
    if ctx.attempt == 1:
        raise Suspend(found.reason, status=RunStatus.BLOCKED, code=found.code)
    forgotten = {"unchanged_in_row": 0, "errors_in_row": 0, "last_error": "", "denials_in_row": 0}
    return NodeResult({"halt": None, **forgotten})
