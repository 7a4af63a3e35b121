"""The nodes of one task: a turn, and the checks on what it left."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from atomic.errors import AtomicError
from atomic.git import FileChange, Picture
from atomic.graph import Postpone, Suspend
from atomic.providers.errors import ProviderError
from atomic.tasks import Task
from atomic.workflows import END, NodeResult
from atomic.workflows.errors import TurnCutError, TurnFailedError
from atomic.workflows.ralph.calls import ask_once
from atomic.workflows.ralph.checking import check_tree, is_known_green, is_repair, look_for_check, repair_task, said_of
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import Evidence, GateResult, diffstat, protected
from atomic.workflows.ralph.own_work import has_committed, has_moved, joined, own_changes, watch_turn
from atomic.workflows.ralph.prompts import aim_of, gate_trouble, role_of, worker_prompt
from atomic.workflows.ralph.state import MOST_ATTEMPTS, Span, Try

UNCHANGED = (
    "no file has changed, so nothing counts as done. Do the work. If it cannot be done, or is done already, leave the"
    " files alone and end your answer with the reason: a person reads it in the report."
)


class TaskFailedError(AtomicError):
    """A task was tried as often as it may be."""

    code = "nothing_runnable"


class TaskStuckError(TaskFailedError):
    """A task does not move: nothing changes, or the same error comes again and again."""

    code = "stuck"


class ChecksRedError(TaskFailedError):
    """The checks stay red, whoever tries to repair them: no other task can begin."""

    code = "check_red"
    decisive = True


async def begin(ctx: Ralph) -> NodeResult:
    """See that the checks are green before a worker begins: what is red then is not this task's fault.

    Raises Postpone where they are red: a repair comes first. The repair itself ends here if they are green by now.
    """
    desk, task, state = Desk(ctx), ctx.item, ctx.state
    desk.check_folder()
    if is_repair(task):
        return await _begin_repair(ctx, desk, task)
    tried = bool(state.tries.get(task.id))  # then what is red may be its own
    if tried or desk.others_work(task.id) or not any(desk.book.is_blocking(gate.command) for gate in desk.book.gates):
        return NodeResult()
    now = await desk.pictures.take()
    if await is_known_green(desk, state, now):
        return NodeResult()
    checked = await check_tree(desk, now=now)
    if checked.red:
        desk.say(f"{said_of(checked.red)} before task {task.id} begins: it is repaired first")
        raise Postpone([repair_task(desk, checked.red)])
    return NodeResult({"checked": {task.id: checked.after}} if checked.is_green(desk) else {})


async def _begin_repair(ctx: Ralph, desk: Desk, task: Task) -> NodeResult:
    checked = await check_tree(desk)
    if checked.missing(desk):
        return NodeResult()
    spans = ctx.state.spans.get(task.id, [])
    attempt = len(ctx.state.tries.get(task.id, [])) + 1
    desk.write_evidence(await evidence_of(desk, task.id, attempt, spans, checked.after, checked.results, ""))
    return NodeResult({"checked": {task.id: checked.after}}, goto=END)


async def work(ctx: Ralph) -> NodeResult:
    """One turn of a worker or fixer; how it ended, and nothing of what it says about itself."""
    desk, task = Desk(ctx), ctx.item
    desk.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    checkout = Checkout(desk)
    # One attempt may bring back what another has moved. Then the run pauses: it may have been the user.
    puts_back = [one.kind == "git" for one in tries[-2:]] in ([True], [False, True])
    with _begun(ctx, task), desk.turn(task.id):
        async with checkout.turn(task.id, is_repair=puts_back):
            prompt = worker_prompt(
                task,
                desk.place(),
                attempt=len(tries) + 1,
                builds_on=_builds_on(desk, task),
                trouble=tries[-1].trouble if tries else "",
                said=tries[-1].said if tries else "",
                cut_off=ctx.attempt > 1 or (bool(tries) and tries[-1].cut_off),
                aim=aim_of(desk.options.goal, desk.tasks.tasks) if role_of(task) == "fixer" else "",
            )
            ended, spans = await watch_turn(ctx, desk, lambda: ask(ctx, prompt, role_of(task)))
    spans = joined([*ctx.state.spans.get(task.id, ()), *spans])
    return NodeResult(
        {
            "broken": {task.id: ended.error},
            "cut_off": {task.id: ended.is_cut},
            "said": {task.id: desk.last_words(ended.text)},
            "misplaced": {task.id: checkout.failed},
            "spans": {task.id: spans},
        }
    )


@contextmanager
def _begun(ctx: Ralph, task: Task) -> Generator[None]:
    """A pause before the first turn leaves the task pending; later ones do not."""
    try:
        yield
    except Suspend as pause:
        pause.begun = pause.begun or bool(ctx.state.spans.get(task.id))
        raise


class Ended(NamedTuple):
    """How a turn ended: the agent's last message, why it did not end well, and whether a limit interrupted it."""

    text: str
    error: str = ""
    is_cut: bool = False


async def ask(ctx: Ralph, prompt: str, role: str) -> Ended:
    """Run one turn of a worker or fixer, unless its answer is in the journal."""
    return await ask_once(ctx, Ended, lambda: _ask(ctx, prompt, role))


async def _ask(ctx: Ralph, prompt: str, role: str) -> Ended:
    try:
        return Ended(await ctx.deps.turn(prompt, agent=role, strict=False))
    except TurnFailedError as failed:
        return Ended(failed.said, str(failed), isinstance(failed, TurnCutError))
    except ProviderError as failed:
        return Ended("", str(failed))


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
    """Run the checks on what the worker left: the task is done, tried again, or given up."""
    desk, task = Desk(ctx), ctx.item
    desk.check_folder()
    tries = ctx.state.tries.get(task.id, [])
    await look_for_check(ctx, desk)
    evidence, failed, green = await _look(ctx, desk, task, attempt=len(tries) + 1)
    desk.write_evidence(evidence)
    desk.note(task.id, result_line(evidence))
    if failed is None:
        return NodeResult({"checked": {task.id: green}} if green is not None else {}, goto=END)
    tries = [*tries, msgspec.structs.replace(failed, said=ctx.state.said.get(task.id, ""))]
    update = {"tries": {task.id: tries}}
    most = MOST_ATTEMPTS + ctx.state.forgiven.get(task.id, 0)  # a resume gives as many again
    if len(tries) >= most:
        return NodeResult(update, goto="give-up")
    desk.say(f"task {task.id}: attempt {len(tries)} of {most} failed: {evidence.reason}; trying again")
    return NodeResult(update, goto="work")


async def give_up(ctx: Ralph) -> NodeResult:
    """Fail the task. A resumed run gives it as many attempts again, each with a turn of its own."""
    id = ctx.item.id
    tries = ctx.state.tries.get(id, [])
    if ctx.attempt == 1:
        raise _given_up(ctx.item, tries[ctx.state.forgiven.get(id, 0) :])
    return NodeResult({"forgiven": {id: len(tries)}}, goto="begin")


async def _look(ctx: Ralph, desk: Desk, task: Task, *, attempt: int) -> tuple[Evidence, Try | None, Picture | None]:
    """The evidence of an attempt, what was missing, and the folder if the run could end with it."""
    state, green = ctx.state, None
    spans, now = state.spans[task.id], await desk.pictures.take()
    changes = await own_changes(desk.pictures, spans)
    error = state.broken.get(task.id, "")
    misplaced = state.misplaced.get(task.id)
    results: Sequence[GateResult] = ()
    if misplaced is not None:
        reason, failed = misplaced.reason, misplaced
    elif error:
        reason = error
        failed = Try("error", f"The turn did not end well: {error}", reason, state.cut_off.get(task.id, False))
    elif not (changes or await has_committed(desk, spans) or task.metadata.get("no_change") is True):
        reason = "no file has changed"
        failed = Try("unchanged", f"When your turn had ended, {UNCHANGED}", reason)
    else:
        checked = await check_tree(desk, now=now)
        results = checked.results
        red = checked.missing(desk) if is_repair(task) else checked.red
        reason = said_of(red)
        failed = Try("gate", gate_trouble(red), reason) if red else None
        green = checked.after if checked.is_green(desk) else None
    return await evidence_of(desk, task.id, attempt, spans, now, results, reason), failed, green


async def evidence_of(
    desk: Desk,
    task: str,
    attempt: int,
    spans: Sequence[Span],
    now: Picture,
    results: Sequence[GateResult],
    reason: str,
) -> Evidence:
    """What is known of one attempt, whatever anybody says of it."""
    changes = await own_changes(desk.pictures, spans)
    # Where several share the checkout nobody can tell whose it is.
    is_told = has_moved(spans) and desk.options.workers == 1
    loose = await desk.pictures.uncommitted(now) if is_told else frozenset[str]()
    return Evidence(
        task=task,
        attempt=attempt,
        status="failed" if reason else "passed",
        gates=tuple(results),
        commit=now.head,
        tree=now.tree,
        changed_files=tuple(one.path for one in changes),
        diffstat=diffstat(changes),
        protected_files=tuple(_protected(desk, task, changes)),
        reason=reason,
        uncommitted=tuple(one.path for one in changes if one.path in loose),
    )


def _protected(desk: Desk, task: str, changes: Sequence[FileChange]) -> list[str]:
    """The changed files that decide about checks, also those that git ignores."""
    seen = protected(changes, [gate.command for gate in desk.book.gates])
    return sorted({*seen, *Checkout(desk).hidden_changes(task)})


def result_line(evidence: Evidence) -> str:
    """What came of an attempt, in one line."""
    result = f"failed: {evidence.reason}" if evidence.reason else "done"
    green = [one for one in evidence.gates if one.exit_code == 0]
    facts = [f"{one.command} passed in {one.seconds:.1f}s" for one in green]
    facts.append(f"{evidence.diffstat.files} files changed")
    if evidence.commit is not None:
        facts.append(f"HEAD {evidence.commit[:10]}")
    return f"attempt {evidence.attempt}, {result} ({', '.join(facts)})"


def same_words(error: str) -> str:
    """An error as it is compared with another: a process, a time or a line has another number each time."""
    return re.sub(r"\d+", "#", error)


def _given_up(task: Task, tries: Sequence[Try]) -> TaskFailedError:
    if is_repair(task):
        seen = [one.reason for one in tries if one.kind == "gate"]
        red = seen[-1] if seen else str(task.metadata.get("red", tries[-1].reason))
        return ChecksRedError(
            f"the checks are still red after {len(tries)} attempts: {red}. The report has the end of the output"
        )
    kinds, words = {one.kind for one in tries}, {same_words(one.trouble) for one in tries}
    if kinds == {"unchanged"}:
        return TaskStuckError(f"{len(tries)} attempts changed no file")
    if kinds == {"error"} and len(words) == 1:
        return TaskStuckError(f"{len(tries)} turns ended with the same error: {tries[-1].reason}")
    return TaskFailedError(f"not done after {len(tries)} attempts: {tries[-1].reason}")
