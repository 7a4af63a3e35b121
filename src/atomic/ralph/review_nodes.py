"""The nodes after the work: checks on the whole, reviews, decisions from them, and the
merge of `--accept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from atomic.base.files import replace_file
from atomic.git import GitError
from atomic.graph import RunStatus, Suspend
from atomic.providers.errors import ProviderError
from atomic.ralph.changed_tests import protected
from atomic.ralph.check_runs import (
    MAX_RUNS,
    check_tree,
    deleted_by_checks,
    deleting,
    is_known_green,
    look_for_check,
    moved_files,
    moving,
    repair_task,
)
from atomic.ralph.checkout import Checkout
from atomic.ralph.evidence import weakened_checks
from atomic.ralph.hidden_files import REVIEW
from atomic.ralph.options import rounds_of
from atomic.ralph.prompts import MAX_PATCH, Change, reviewer_prompt
from atomic.ralph.review import (
    Finding,
    Review,
    ReviewError,
    blockers_of,
    fix_tasks,
    repeated_blockers,
    review_in,
    review_tool,
    strictest,
)
from atomic.ralph.run_folder import Ralph, RunFolder, ask_once, calls_of
from atomic.ralph.state import Halt, RalphState
from atomic.tasks import Task, TaskList
from atomic.workflows import NodeResult
from atomic.workflows.errors import TurnFailedError
from atomic.workspaces import View
from atomic.workspaces.acceptance import Acceptance
from atomic.workspaces.branch_merges import BranchError
from atomic.workspaces.run_branch import AcceptResult

_CHOSEN = "tasks"  # the key under which a step remembers the tasks that it adds
MAX_MOVES = 2  # how often the work is checked and reviewed again because files have changed


async def settle(ctx: Ralph) -> NodeResult:
    """Run all checks on the current files; red ones become a task.

    Raises Suspend if the files keep changing.
    """
    run = RunFolder(ctx)
    state = ctx.state
    run.check_folder()
    await Checkout(run).stay()
    await look_for_check(ctx, run)
    now = await run.current()
    await Checkout(run).note_undone(now)
    is_same = not _changed_by_reviewers(run, state) and not await deleted_by_checks(run)
    if not run.checks.chosen or (is_same and await is_known_green(run, state, now)):
        return NodeResult({"settled": now})
    checked = await check_tree(run, now=now, runs=MAX_RUNS)
    if checked.moved:
        raise Suspend(moving(checked.moved, "while the checks ran"), status=RunStatus.BLOCKED, code="moving_tree")
    if ctx.attempt == 1 and (gone := await deleted_by_checks(run)):  # after a resume the user knows
        raise Suspend(deleting(gone), status=RunStatus.BLOCKED, code="moving_tree")
    if red := checked.missing(run):
        await _add_tasks(ctx, run, [repair_task(run, red)])
        return NodeResult(goto="tasks")
    return NodeResult({"settled": checked.after, "checked": {"": checked.after}})


async def _add_tasks(ctx: Ralph, run: RunFolder, tasks: Sequence[Task]) -> None:
    """Append tasks to those of the run.

    Ids depend on the existing tasks. A step that is killed after they are written and
    before it is recorded runs again: it adds the tasks that it chose the first time,
    not the same work under new ids.
    """
    if (chosen := ctx.remembered(_CHOSEN)) is not None:
        tasks = msgspec.convert(chosen, list[Task])
    await ctx.remember(_CHOSEN, tasks)
    known = run.tasks
    ids = {task.id for task in known.tasks}
    new = [task for task in tasks if task.id not in ids]
    run.write_tasks(TaskList([*known.tasks, *new], metadata=known.metadata))


async def review(ctx: Ralph) -> NodeResult:
    """Ask for one review, and again after an unreadable answer.

    A second one is not approved.
    """
    run = RunFolder(ctx)
    key = _key(ctx)
    problem = ctx.state.asked_again.get(key, "")
    try:
        found = await _ask_reviewer(ctx, run, problem)
    except (ReviewError, TurnFailedError, ProviderError) as error:
        if not problem:
            unserved = not isinstance(error, ReviewError)
            return NodeResult({"asked_again": {key: str(error)}, "unserved": {key: unserved}}, goto=ctx.output_key)
        found = Review(problem=f"no readable review, twice: {error}")
    return NodeResult({"reviews": [found]})


def _key(ctx: Ralph) -> str:
    return f"{len(ctx.state.reviews)}-{ctx.index}"


async def _ask_reviewer(ctx: Ralph, run: RunFolder, problem: str) -> Review:
    """Ask the reviewer once. Raises ReviewError."""
    state = ctx.state
    other = _other_provider(ctx)
    if state.unserved.get(_key(ctx)):  # the worker's agent is better than none
        other = ctx.deps.provider_of("worker")
    checkout = Checkout(run)
    round_name = _round_name(len(state.reviews))
    place = f"review-{len(state.reviews)}-{ctx.index}"
    async with checkout.turn("review", is_repair=False, hidden_as=round_name), run.reading(place) as view:
        prompt = reviewer_prompt(
            run.options.goal,
            run.tasks.tasks,
            run.evidence,
            await _change(ctx, run),
            run.prompt_context(view),
            attempt=2 if problem else 1,
            before=state.rounds[-1] if state.rounds else (),
            weakened=weakened_checks(run.evidence, run.checks.tests_before),
            problem=problem,
        )
        answer, submitted = await ask_once(
            ctx, tuple[str, list[Review]], lambda: _reviewer_turn(ctx, prompt, provider=other, view=view)
        )
    if checkout.failed is not None:
        run.say(f"the reviewer changed the checkout: {checkout.failed.reason}")
    await checkout.require_repository()
    assert state.settled is not None  # `settle` has set it
    changes = await run.snapshots.changes(state.settled, await run.current())
    checkout.hidden.note(round_name, protected(changes, run.checks.commands))
    if paths := checkout.hidden.changed_by(round_name):
        run.say(f"the reviewer changed files that decide about checks: {', '.join(paths[:5])}")
    if not submitted:
        return review_in(answer)
    with suppress(ReviewError):  # a stricter review in the answer counts too
        submitted.append(review_in(answer))
    return strictest(submitted)


async def _reviewer_turn(
    ctx: Ralph, prompt: str, *, provider: str | None, view: View | None
) -> tuple[str, list[Review]]:
    """Return the reviewer's answer and the reviews that it submitted."""
    submitted: list[Review] = []
    tools = [review_tool(submitted.append)]
    answer = await ctx.deps.turn(
        prompt, agent="reviewer", provider=provider, custom_tools=tools, strict=False, workspace=view
    )
    return answer, submitted


def _round_name(reviews_before: int) -> str:
    return f"{REVIEW}{reviews_before}"


def _changed_by_reviewers(run: RunFolder, state: RalphState) -> list[str]:
    """Return tests, configuration files and tools that the last reviewers changed."""
    return Checkout(run).hidden.changed_by(_round_name(len(state.reviews) - run.options.reviewers))


def _other_provider(ctx: Ralph) -> str | None:
    """Return another agent than the one that worked, if two are configured.

    Otherwise None.
    """
    worked = [call.provider for call in calls_of(ctx.deps.facts) if call.who == "worker"]
    working = worked[-1] if worked else ctx.deps.provider_of("worker")
    return next((name for name in ctx.deps.configured if name != working), None)


async def _change(ctx: Ralph, run: RunFolder) -> Change:
    state = ctx.state
    start = state.start
    now = await run.current()
    assert start is not None  # `prepare` has taken it
    patch, _ = await run.snapshots.patch(start, now, max_bytes=16 * 1024 * 1024)
    file = run.make_notes() / f"changes-{len(state.rounds) + 1}.patch"
    replace_file(file, ctx.deps.files.redactor.text(patch).encode("utf-8", "replace"), durable=False)
    return Change(patch, len(patch) > MAX_PATCH, str(file), start.head)


async def judge(ctx: Ralph) -> NodeResult:
    """Decide from the reviews: the run is done, findings must be fixed, or the user
    must decide.
    """
    state = ctx.state
    run = RunFolder(ctx)
    await Checkout(run).stay()
    reviews = state.reviews[-run.options.reviewers :]
    if all(one.approved for one in reviews):
        return await _approved(ctx, run)
    rounds = [*state.rounds, blockers_of(reviews)]
    halt = _halt(rounds, reviews, rounds_of(ctx.deps.config))
    if halt is None:
        await _add_tasks(ctx, run, fix_tasks(rounds[-1], _round_number(run)))
    return NodeResult({"rounds": rounds, "halt": halt})


async def _approved(ctx: Ralph, run: RunFolder) -> NodeResult:
    """End the run if the files are still those that were checked and reviewed.

    Otherwise do both again.
    """
    settled = ctx.state.settled
    assert settled is not None  # `settle` has set it
    moved = await moved_files(run, settled, await run.current())
    moved = sorted({*moved, *_changed_by_reviewers(run, ctx.state)})
    if not moved:
        return NodeResult({"over": True, "moves": 0})
    moves = ctx.state.moves + 1
    if moves > MAX_MOVES:
        return NodeResult({"moves": 0, "halt": Halt("moving_tree", moving(moved, "after the checks"))})
    named = ", ".join(moved[:5])
    run.say(f"files changed after the last check ({named}): the work is checked and reviewed again")
    return NodeResult({"moves": moves}, goto="settle")


def _round_number(run: RunFolder) -> int:
    known = [task.id.split("-") for task in run.tasks.tasks if task.id.startswith("fix-")]
    return 1 + max((int(parts[1]) for parts in known if len(parts) == 3 and parts[1].isdecimal()), default=0)


def _halt(rounds: Sequence[Sequence[Finding]], reviews: Sequence[Review], most: int) -> Halt | None:
    last = rounds[-1]
    if often := repeated_blockers(rounds):
        return Halt("same_blocker", f"the same finding came back in three reviews: {_titles(often)}")
    if not last:
        return Halt("not_approved", _not_approved(reviews))
    if len(rounds) >= most:
        return Halt("review_rounds", f"after {len(rounds)} reviews this is still open: {_titles(last)}")
    return None


def _titles(findings: Sequence[Finding]) -> str:
    titles = [f'"{one.title}" ({one.location})' if one.location else f'"{one.title}"' for one in findings[:5]]
    more = f" and {len(findings) - 5} more" if len(findings) > 5 else ""
    return f"{'; '.join(titles)}{more}"


def _not_approved(reviews: Sequence[Review]) -> str:
    for one in reviews:
        if one.problem:
            return f"the review is not approved: {one.problem}"
    summary = next((one.summary for one in reviews if not one.approved and one.summary), "it gives no reason")
    return f"the reviewer asks for changes without naming one that blocks: {summary}"


async def halt(ctx: Ralph) -> NodeResult:
    """Wait for the user, if that is needed.

    After a resume the work is reviewed again, from the start.
    """
    found = ctx.state.halt
    if found is None:
        return NodeResult()
    if ctx.attempt == 1:
        raise Suspend(found.reason, status=RunStatus.BLOCKED, code=found.code)
    return NodeResult({"halt": None, "rounds": []}, goto="settle")


def is_reviewed(state: RalphState) -> bool:
    """Return whether the run has reviews."""
    return state.options.review_rounds > 0


async def accept(ctx: Ralph) -> NodeResult:
    """Merge the run's branch into the user's if that is a fast-forward, or say why not.

    A run is completed in both cases.
    """
    run = RunFolder(ctx)
    if not run.is_isolated:
        return NodeResult()  # the work is in the checkout already
    try:
        result = await _accept(run, again=ctx.attempt > 1)
    except (BranchError, GitError) as error:
        result = AcceptResult(problem=str(error))
    if result.problem:
        run.say(f"--accept: not merged. {result.problem}")
    run.workspaces.keep_accept_result(result)
    return NodeResult()


async def _accept(run: RunFolder, *, again: bool) -> AcceptResult:
    """Merge the branch. Raises BranchError, GitError, Suspend."""
    spaces = run.workspaces
    branch = spaces.required_branch
    repository = spaces.repository
    tip = await run.tip()
    if tip == branch.first:
        raise BranchError(f"{branch.name} has no commit that is not yours")
    head, ref = await repository.head()
    # A process that was killed after the merge did not record it.
    if again and head is not None and ref is not None and await repository.is_ancestor(tip, head):
        return AcceptResult(ref.removeprefix("refs/heads/"), head)
    id = run.session.name
    acceptance = Acceptance(repository, branch, id)
    outlook = await acceptance.look(tip)
    if outlook.has_moved:
        raise BranchError(
            f"{outlook.target} has commits that {branch.name} does not have: atomic accept {id[:8]} merges both"
        )
    accepted = await acceptance.merge(outlook)
    return AcceptResult(accepted.target, accepted.commit)
