"""The nodes behind the work: the gates on the whole, the reviews, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from atomic.graph import RunStatus, Suspend
from atomic.providers.errors import ProviderError
from atomic.saving import replace_file
from atomic.tasks import Task, TaskList
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.ralph.calls import calls_of
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import GateResult
from atomic.workflows.ralph.options import rounds_of
from atomic.workflows.ralph.prompts import Change, gate_trouble, reviewer_prompt
from atomic.workflows.ralph.review import (
    Finding,
    Review,
    ReviewError,
    fix_tasks,
    often_found,
    review_in,
    review_tool,
    strictest,
    united,
)
from atomic.workflows.ralph.state import Halt, RalphState

MOST_SHOWN = 60_000


async def settle(ctx: Ralph) -> NodeResult:
    """Run the gates on the whole, unless a task has just proven this very tree; what is red becomes a task."""
    desk = Desk(ctx)
    desk.check_folder()
    await Checkout(desk).stay()
    now = await desk.pictures.take()
    if any(proof.status == "passed" and proof.tree == now.tree for proof in desk.evidence.values()):
        return NodeResult()
    results = await desk.book.check(desk.cwd, desk.options.gate_timeout)
    red = [result for result in results if result.blocking and result.exit_code != 0]
    if not red:
        return NodeResult()
    known = {task.id for task in desk.tasks.tasks}  # a list may have a task of such a name
    add_tasks(desk, [_repair(red, next(number for number in count(1) if f"gate-{number}" not in known))])
    return NodeResult(goto="tasks")


def _repair(red: Sequence[GateResult], number: int) -> Task:
    finding = Finding("The gates are red on all of the work together", gate_trouble(red), 0)
    [task] = fix_tasks([finding], number)
    return Task(f"gate-{number}", task.title, task.description, priority=0, metadata=task.metadata)


def add_tasks(desk: Desk, tasks: Sequence[Task]) -> None:
    """Put tasks behind those of the run; those that are there already stay as they are."""
    known = desk.tasks
    ids = {task.id for task in known.tasks}
    new = [task for task in tasks if task.id not in ids]
    desk.write_tasks(TaskList([*known.tasks, *new], metadata=known.metadata))


# review ------------------------------------------------------------------------------------------------------------


async def review(ctx: Ralph) -> NodeResult:
    """One review; an answer that is none is asked for once more, then counts as not approved."""
    desk, key = Desk(ctx), _key(ctx)
    problem = ctx.state.asked_again.get(key, "")
    try:
        found = await _ask_reviewer(ctx, desk, problem)
    except (ReviewError, TurnFailedError, ProviderError) as error:
        if not problem:
            unserved = not isinstance(error, ReviewError)
            return NodeResult({"asked_again": {key: str(error)}, "unserved": {key: unserved}}, goto=ctx.output_key)
        found = Review(problem=f"no readable review, twice: {error}")
    return NodeResult({"reviews": [found]})


def _key(ctx: Ralph) -> str:
    return f"{len(ctx.state.reviews)}-{ctx.index}"


async def _ask_reviewer(ctx: Ralph, desk: Desk, problem: str) -> Review:
    """One answer. Raises ReviewError."""
    state, handed_in = ctx.state, list[Review]()
    prompt = reviewer_prompt(
        desk.options.goal,
        desk.tasks.tasks,
        desk.evidence,
        await _change(ctx, desk),
        desk.place(),
        attempt=2 if problem else 1,
        before=state.rounds[-1] if state.rounds else (),
        problem=problem,
    )
    tools = [review_tool(handed_in.append)]
    # If the other one cannot be asked, the worker's is better than none.
    other = ctx.deps.provider_of("worker") if state.unserved.get(_key(ctx)) else _reviewing(ctx, desk)
    checkout = Checkout(desk)
    async with checkout.turn("review", is_repair=False):
        answer = await ctx.deps.turn(prompt, agent="reviewer", provider=other, custom_tools=tools, strict=False)
    if checkout.failed is not None:
        desk.say(f"the reviewer changed the checkout: {checkout.failed.reason}")
    if not handed_in:
        return review_in(answer)
    with suppress(ReviewError):  # what was handed in counts; a stricter word in the answer counts too
        handed_in.append(review_in(answer))
    return strictest(handed_in)


def _reviewing(ctx: Ralph, desk: Desk) -> str | None:
    """Another provider than the one that worked, where two are configured; else any."""
    worked = [call.provider for call in calls_of(desk.session) if call.who == "worker"]
    working = worked[-1] if worked else ctx.deps.provider_of("worker")
    return next((name for name in ctx.deps.configured if name != working), None)


async def _change(ctx: Ralph, desk: Desk) -> Change:
    state = ctx.state
    start, now = state.start, await desk.pictures.take()
    assert start is not None  # `prepare` has taken it
    patch, _ = await desk.pictures.patch(start, now, max_bytes=16 * 1024 * 1024)
    file = desk.make_notes() / f"changes-{len(state.rounds) + 1}.patch"
    replace_file(file, ctx.deps.files.redactor.text(patch).encode("utf-8", "replace"), durable=False)
    return Change(patch, len(patch) > MOST_SHOWN, str(file), start.head)


async def judge(ctx: Ralph) -> NodeResult:
    """See what the reviews come to: it is done, there is something to repair, or a person is needed."""
    state, desk = ctx.state, Desk(ctx)
    await Checkout(desk).stay()
    reviews = state.reviews[-desk.options.reviewers :]
    if all(one.approved for one in reviews):
        return NodeResult({"over": True})
    rounds = [*state.rounds, united(reviews)]
    halt = _halt(rounds, reviews, rounds_of(ctx.deps.config))
    if halt is None:
        add_tasks(desk, fix_tasks(rounds[-1], _round_number(desk)))
    return NodeResult({"rounds": rounds, "halt": halt})


def _round_number(desk: Desk) -> int:
    known = [task.id.split("-") for task in desk.tasks.tasks if task.id.startswith("fix-")]
    return 1 + max((int(parts[1]) for parts in known if len(parts) == 3 and parts[1].isdigit()), default=0)


def _halt(rounds: Sequence[Sequence[Finding]], reviews: Sequence[Review], most: int) -> Halt | None:
    last = rounds[-1]
    if often := often_found(rounds):
        return Halt("same_blocker", f"the same finding came back in three reviews: {_titles(often)}")
    if not last:
        return Halt("not_approved", _not_approved(reviews))
    if len(rounds) >= most:
        return Halt("review_rounds", f"after {len(rounds)} reviews this is still open: {_titles(last)}")
    return None


def _titles(findings: Sequence[Finding]) -> str:
    return "; ".join(f'"{one.title}"' + (f" ({one.location})" if one.location else "") for one in findings[:5]) + (
        f" and {len(findings) - 5} more" if len(findings) > 5 else ""
    )


def _not_approved(reviews: Sequence[Review]) -> str:
    for one in reviews:
        if one.problem:
            return f"the review is not approved: {one.problem}"
    summary = next((one.summary for one in reviews if not one.approved and one.summary), "it gives no reason")
    return f"the reviewer asks for changes without naming one that blocks: {summary}"


async def halt(ctx: Ralph) -> NodeResult:
    """Wait for a person, if one is needed. Who resumes has looked: then it is reviewed once more, from the start."""
    found = ctx.state.halt
    if found is None:
        return NodeResult()
    if ctx.attempt == 1:
        raise Suspend(found.reason, status=RunStatus.BLOCKED, code=found.code)
    return NodeResult({"halt": None, "rounds": []}, goto="settle")


def is_reviewed(state: RalphState) -> bool:
    """Whether there is a review at all."""
    return state.options.review_rounds > 0
