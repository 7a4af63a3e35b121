"""The nodes behind the work: the gates on the whole, the reviews, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from atomic.graph import RunStatus, Suspend
from atomic.providers.errors import ProviderError
from atomic.saving import replace_file
from atomic.tasks import Task, TaskList
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.ralph.calls import ask_once, calls_of
from atomic.workflows.ralph.checking import (
    MOST_RUNS,
    check_tree,
    is_known_green,
    look_for_check,
    moved_files,
    moving,
    repair_task,
)
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.options import rounds_of
from atomic.workflows.ralph.prompts import Change, reviewer_prompt
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
_CHOSEN = "tasks"  # what a step remembers: the tasks that it adds
MOST_MOVES = 2  # how often all is checked and reviewed again because files have changed


async def settle(ctx: Ralph) -> NodeResult:
    """See that all checks are green on the files as they are now; red ones become a task.

    Raises Suspend where the files do not stand still.
    """
    desk, state = Desk(ctx), ctx.state
    desk.check_folder()
    await Checkout(desk).stay()
    await look_for_check(ctx, desk)
    now = await desk.pictures.take()
    is_same = not _changed_by_reviewers(desk, state)
    if not desk.book.gates or (is_same and await is_known_green(desk, state, now)):
        return NodeResult({"settled": now})
    checked = await check_tree(desk, now=now, runs=MOST_RUNS)
    if checked.moved:
        raise Suspend(moving(checked.moved, "while the checks ran"), status=RunStatus.BLOCKED, code="moving_tree")
    if red := checked.missing(desk):
        await _add_tasks(ctx, desk, [repair_task(desk, red)])
        return NodeResult(goto="tasks")
    return NodeResult({"settled": checked.after, "checked": {"": checked.after}})


async def _add_tasks(ctx: Ralph, desk: Desk, tasks: Sequence[Task]) -> None:
    """Put tasks behind those of the run.

    Ids depend on the tasks that are there. A step that is killed when they are written and before it is recorded runs
    again: it adds the tasks that it chose the first time, not the same work under new ids.
    """
    if (chosen := ctx.remembered(_CHOSEN)) is not None:
        tasks = msgspec.convert(chosen, list[Task])
    await ctx.remember(_CHOSEN, tasks)
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
    state = ctx.state
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
    # If the other one cannot be asked, the worker's is better than none.
    other = ctx.deps.provider_of("worker") if state.unserved.get(_key(ctx)) else _reviewing(ctx, desk)
    checkout, round_name = Checkout(desk), _round_name(len(state.reviews))
    async with checkout.turn("review", is_repair=False, hidden_as=round_name):
        answer, handed_in = await ask_once(
            ctx, tuple[str, list[Review]], lambda: _reviewer_turn(ctx, prompt, provider=other)
        )
    if checkout.failed is not None:
        desk.say(f"the reviewer changed the checkout: {checkout.failed.reason}")
    if paths := checkout.hidden_changes(round_name):
        desk.say(f"the reviewer changed files that git ignores and that decide about checks: {', '.join(paths[:5])}")
    if not handed_in:
        return review_in(answer)
    with suppress(ReviewError):  # what was handed in counts; a stricter word in the answer counts too
        handed_in.append(review_in(answer))
    return strictest(handed_in)


async def _reviewer_turn(ctx: Ralph, prompt: str, *, provider: str | None) -> tuple[str, list[Review]]:
    """Return the reviewer's answer and the reviews that it handed in."""
    handed_in: list[Review] = []
    tools = [review_tool(handed_in.append)]
    answer = await ctx.deps.turn(prompt, agent="reviewer", provider=provider, custom_tools=tools, strict=False)
    return answer, handed_in


def _round_name(reviews_before: int) -> str:
    return f"review {reviews_before}"


def _changed_by_reviewers(desk: Desk, state: RalphState) -> list[str]:
    """Return the steering files and tools that the last reviewers changed although git ignores them."""
    return Checkout(desk).hidden_changes(_round_name(len(state.reviews) - desk.options.reviewers))


def _reviewing(ctx: Ralph, desk: Desk) -> str | None:
    """Another provider than the one that worked, where two are configured; else any."""
    worked = [call.provider for call in calls_of(ctx.deps.facts) if call.who == "worker"]
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
        return await _approved(ctx, desk)
    rounds = [*state.rounds, united(reviews)]
    halt = _halt(rounds, reviews, rounds_of(ctx.deps.config))
    if halt is None:
        await _add_tasks(ctx, desk, fix_tasks(rounds[-1], _round_number(desk)))
    return NodeResult({"rounds": rounds, "halt": halt})


async def _approved(ctx: Ralph, desk: Desk) -> NodeResult:
    """The run is over if the files are still those that were checked and reviewed; else both are done again."""
    settled = ctx.state.settled
    assert settled is not None  # `settle` has set it
    moved = await moved_files(desk, settled, await desk.pictures.take())
    moved = sorted({*moved, *_changed_by_reviewers(desk, ctx.state)})
    if not moved:
        return NodeResult({"over": True, "moves": 0})
    moves = ctx.state.moves + 1
    if moves > MOST_MOVES:
        return NodeResult({"moves": 0, "halt": Halt("moving_tree", moving(moved, "after the checks"))})
    named = ", ".join(moved[:5])
    desk.say(f"files changed after the last check ({named}): the work is checked and reviewed again")
    return NodeResult({"moves": moves}, goto="settle")


def _round_number(desk: Desk) -> int:
    known = [task.id.split("-") for task in desk.tasks.tasks if task.id.startswith("fix-")]
    return 1 + max((int(parts[1]) for parts in known if len(parts) == 3 and parts[1].isdecimal()), default=0)


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
