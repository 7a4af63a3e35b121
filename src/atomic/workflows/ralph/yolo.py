"""No plan: the same prompt in fresh contexts, until the agent keeps its promise and the gates agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from atomic.graph import RunStatus, Suspend
from atomic.workflows import NodeResult
from atomic.workflows.ralph.checking import MOST_RUNS, check_tree, look_for_check, moving, said_of
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import GateResult
from atomic.workflows.ralph.own_work import has_committed, joined, own_changes, watch_turn
from atomic.workflows.ralph.prompts import PROMISE, gate_trouble, yolo_prompt
from atomic.workflows.ralph.state import Halt, RalphState
from atomic.workflows.ralph.working import ask, evidence_of, same_words
from atomic.workflows.task_loop import ends_with_signal

TASK = "yolo"  # the name of its evidence
STUCK = 3  # so many turns without a changed file, or with the same error


async def turn(ctx: Ralph) -> NodeResult:
    """One turn in a fresh context."""
    desk, state = Desk(ctx), ctx.state
    desk.check_folder()
    number = state.iteration + 1
    checkout = Checkout(desk)
    with desk.turn():
        async with checkout.turn(TASK, is_repair=state.misplaced.get(TASK) is not None):
            prompt = yolo_prompt(
                desk.options.goal,
                desk.place(),
                attempt=number,
                trouble=state.trouble,
                said=state.said.get(TASK, ""),
                cut_off=ctx.attempt > 1 or state.cut_off.get(TASK, False),
            )
            ended, spans = await watch_turn(ctx, desk, lambda: ask(ctx, prompt, "worker"))
    error = ended.error
    if checkout.failed is not None:
        error = checkout.failed.reason
    again = bool(error) and same_words(error) == same_words(state.last_error)
    in_row = state.errors_in_row + 1 if again else int(bool(error))
    changed = bool(await own_changes(desk.pictures, spans)) or await has_committed(desk, spans)
    return NodeResult(
        {
            "iteration": number,
            "answer": "" if error else ended.text,
            "said": {TASK: desk.last_words(ended.text)},
            "cut_off": {TASK: ended.is_cut},
            "last_error": error,
            "errors_in_row": in_row,
            "unchanged_in_row": 0 if changed else state.unchanged_in_row + 1,
            "misplaced": {TASK: checkout.failed},
            "spans": {TASK: joined([*state.spans.get(TASK, ()), *spans])},
        }
    )


async def look(ctx: Ralph) -> NodeResult:
    """Whether the promise was kept; if not, what to say in the next turn, and whether anything still moves."""
    desk, state = Desk(ctx), ctx.state
    desk.check_folder()
    still = state.unchanged_in_row
    facts: dict[str, Any] = {"answer": ""}
    red, denials = list[GateResult](), 0
    misplaced = state.misplaced.get(TASK)
    reason = ""
    if misplaced is not None:
        trouble, reason = misplaced.trouble, misplaced.reason
    elif state.last_error:
        trouble = f"The turn did not end well: {state.last_error}"
        reason = f"the turn did not end well: {state.last_error}"
    elif not ends_with_signal(state.answer, PROMISE):
        trouble, reason = "", "the agent has not given its promise"
    elif not (red := await _denied(ctx, desk)):
        return NodeResult({**facts, "over": True})
    else:
        denial = _denial(red)
        denials = state.denials_in_row + 1 if denial and denial == state.denial else 1
        facts |= {"denial": denial, "denials_in_row": denials}
        trouble = f"You promised that all is done, but the checks say that it is not.\n\n{gate_trouble(red)}"
    if reason:  # the run may pause before the next turn: its report tells what this one left
        now = await desk.pictures.take()
        desk.write_evidence(await evidence_of(desk, TASK, state.iteration, state.spans[TASK], now, (), reason))
    return NodeResult({**facts, "trouble": trouble, "halt": _stuck(state, still) or _denied_again(denials, red)})


async def _denied(ctx: Ralph, desk: Desk) -> list[GateResult]:
    """The checks that say that the promise does not hold. Raises Suspend where the files do not stand still."""
    state = ctx.state
    await look_for_check(ctx, desk)
    checked = await check_tree(desk, runs=MOST_RUNS)
    if checked.moved:
        raise Suspend(moving(checked.moved, "while the checks ran"), status=RunStatus.BLOCKED, code="moving_tree")
    now, results, red = checked.after, checked.results, checked.missing(desk)
    reason = f"the promise does not hold: {said_of(red)}" if red else ""
    desk.write_evidence(await evidence_of(desk, TASK, state.iteration, state.spans[TASK], now, results, reason))
    return red


def _denial(red: Sequence[GateResult]) -> str:
    """What the gates said, as it is compared: how long something took is another number each time, a count is not.

    Nothing if one is silent: that does not tell whether anything moves.
    """
    if not all(gate.output_tail.strip() for gate in red):
        return ""
    return "\n".join(re.sub(r"\d+\.\d+", "#", f"{gate.command} {gate.exit_code} {gate.output_tail}") for gate in red)


def _denied_again(denials: int, red: Sequence[GateResult]) -> Halt | None:
    if denials < STUCK:
        return None
    return Halt(
        "stuck",
        f"{denials} promises were denied by the same error: {said_of(red)}. The report has the end of the output",
    )


def _stuck(state: RalphState, still: int) -> Halt | None:
    if state.errors_in_row >= STUCK:
        return Halt("stuck", f"{state.errors_in_row} turns ended with the same error: {state.last_error}")
    return Halt("stuck", f"{still} turns changed no file and kept no promise") if still >= STUCK else None


async def rest(ctx: Ralph) -> NodeResult:
    """Wait for a person where nothing moves any more; who resumes wants three more turns."""
    found = ctx.state.halt
    if found is None:
        return NodeResult()
    if ctx.attempt == 1:
        raise Suspend(found.reason, status=RunStatus.BLOCKED, code=found.code)
    forgotten = {"unchanged_in_row": 0, "errors_in_row": 0, "last_error": "", "denials_in_row": 0}
    return NodeResult({"halt": None, **forgotten})
