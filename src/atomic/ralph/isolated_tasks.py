"""The nodes of one task in a workspace of its own: a turn, and the merge after its
checks.

The checks in between are in `task_nodes.check_turn`, as for a task in the checkout.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.ralph.check_runs import Checked, check_tree, is_known_green, said_of
from atomic.ralph.evidence import CheckResult
from atomic.ralph.prompts import aim_of, check_output, is_check_repair, quoted, role_of, worker_prompt
from atomic.ralph.run_folder import Ralph, RunFolder, has_answer
from atomic.ralph.state import RalphState, Span, Try
from atomic.ralph.task_nodes import ask, begun, builds_on, evidence_of
from atomic.tasks import Task
from atomic.workflows import END, NodeResult
from atomic.workspaces import UNSOLVED, WHOLE, Conflict, Landed, View, Work
from atomic.workspaces.run_workspaces import TIP

MAX_RETURNS = 2  # how often a task goes back to its worker before it starts again from the tip
MAX_MERGES = 2 * MAX_RETURNS + 1  # failed merges, one new start included
MAX_HINT = 30_000  # characters of a former change


async def begin(ctx: Ralph) -> NodeResult:
    """Make the workspace of a task at the tip of the run's branch.

    A repair ends here if the checks are green.
    """
    run = RunFolder(ctx)
    task = ctx.item
    run.check_folder()
    tip = await run.tip()
    if is_check_repair(task):
        checked = await check_tree(run, now=await run.snapshot_of(tip))
        if not checked.missing(run):
            spans = ctx.state.spans.get(task.id, [])
            attempt = ctx.state.turns.get(task.id, 0) + 1
            run.write_evidence(await evidence_of(run, task.id, attempt, spans, checked.after, checked.results, ""))
            return NodeResult({"checked": {task.id: checked.after}}, goto=END)
    await run.workspaces.create(task.id, tip)
    return NodeResult({"starts": {task.id: tip}, "spans": {task.id: []}})


async def work(ctx: Ralph) -> NodeResult:
    """Run one turn in the workspace of the task, and keep everything that it left.

    Raises Suspend before the turn if its work could not be merged.
    """
    await ctx.take_worker()
    run = RunFolder(ctx)
    await run.tip()
    task = ctx.item
    state = ctx.state
    attempt = state.turns.get(task.id, 0) + 1
    start = state.starts[task.id]
    spans = state.spans.get(task.id, [])
    last = spans[-1].after.head if spans else start  # if its folder was removed, it continues with what is kept
    message = f"{task.title}\n\nAtomic-Task: {task.id}"
    place = ctx.deps.workspace(task.id, message=message, start=start, at=last or start, attempt=attempt, keep=True)
    with begun(ctx, task), run.turn(task.id):
        async with place as workspace:
            prompt = "" if has_answer(ctx) else _prompt(ctx, run, task, workspace.view, attempt)
            ended = await ask(ctx, prompt, role_of(task), workspace.view)
    done = workspace.work
    span = Span(await run.snapshot_of(done.base or start), await run.snapshot_of(done.commit))
    return NodeResult(
        {
            "broken": {task.id: ended.error},
            "cut_off": {task.id: ended.is_cut},
            "misplaced": {task.id: await misplaced(run, done)},
            "said": {task.id: run.last_words(ended.text)},
            "spans": {task.id: [span]},
            "turns": {task.id: attempt},
        }
    )


async def misplaced(run: RunFolder, work: Work) -> Try | None:
    """Return why the commits of a turn cannot be merged, whatever the checks say."""
    if unfinished := work.unfinished:
        how = f"Finish it (`git {unfinished} --continue`) or end it (`git {unfinished} --abort`)"
        what = f"a {unfinished} in progress"
        if unfinished == UNSOLVED:
            how = "Solve them, `git add` the files"
            what = "conflicts in the index"
        return Try(
            "git",
            f"You left {what}: files may have both sides of a conflict in them, and commits may be missing. {how}, look"
            " at your files, and commit.",
            f"the worker left {what}",
        )
    if not work.base:
        short = work.start[:12]
        return Try(
            "git",
            f"Your last commit does not contain the commit {short}, at which your task began: the work of others would"
            f" be lost. Put your commits on top of it (`git rebase {short}`). If your files are already as they should"
            f" be: `git reset --soft {short}`, and commit. Only add commits, and amend only your own.",
            f"the worker's commits do not contain the start of the task ({short})",
        )
    if links := await run.workspaces.links_outside(work.base, work.commit):
        paths = ", ".join(links[:5])
        return Try(
            "git",
            f"These links lead out of the project: {paths}. Checks would use files that are in no commit. Commit the"
            " files themselves, or links to files of the project (relative ones).",
            f"links lead out of the project: {paths}",
        )
    return None


def _prompt(ctx: Ralph, run: RunFolder, task: Task, view: View, attempt: int) -> str:
    state = ctx.state
    tries = state.tries.get(task.id, [])
    last = state.returned.get(task.id) or (tries[-1] if tries else None)
    return worker_prompt(
        task,
        run.prompt_context(view),
        attempt=attempt,
        builds_on=builds_on(run, task),
        trouble="" if last is None else last.trouble,
        said="" if last is None else last.said,
        cut_off=ctx.attempt > 1 or (last is not None and last.cut_off),
        aim=aim_of(run.options.goal, run.tasks.tasks) if role_of(task) == "fixer" else "",
    )


async def merge(ctx: Ralph) -> NodeResult:
    """Put the work of a task on the run's branch: rebase it, check the result, and move
    the branch.

    If that fails, the task goes back to its worker. Another one works meanwhile.
    """
    ctx.free_worker()
    run = RunFolder(ctx)
    task = ctx.item
    run.check_folder()
    checked: list[Checked] = []

    async def find_problem(commit: str) -> Try | None:
        checked.append(await _check(ctx, run, commit))
        red = checked[-1].missing(run) if is_check_repair(task) else checked[-1].red
        return _red(red) if red else None

    order = [one.id for one in run.tasks.tasks].index(task.id)
    merged = await ctx.deps.merge(_work_of(ctx.state, task), order=order, check=find_problem)
    if isinstance(merged, Conflict):
        merged = _conflict(merged)
    if isinstance(merged, Try):
        return await _send_back(ctx, run, task, merged)
    _note(run, task, merged, checked[-1].results if checked else ())
    await run.workspaces.remove(task.id)
    # A merge is made although checks are red that only the end of the run needs.
    is_proven = bool(run.checks.chosen and checked) and not checked[-1].missing(run)
    return NodeResult({"checked": {task.id: checked[-1].after}} if is_proven else {}, goto=END)


def _work_of(state: RalphState, task: Task) -> Work:
    """Return the work of a task in its workspace."""
    commit = state.spans[task.id][-1].after.head
    assert commit is not None
    return Work(task.id, task.title, state.turns[task.id], state.starts[task.id], commit)


async def _check(ctx: Ralph, run: RunFolder, commit: str) -> Checked:
    """Run the checks on a commit, unless they are known to be green on its files."""
    snapshot = await run.snapshot_of(commit)
    if await is_known_green(run, ctx.state, snapshot):
        return Checked((), snapshot)
    return await check_tree(run, now=snapshot)


def _note(run: RunFolder, task: Task, landed: Landed, results: Sequence[CheckResult]) -> None:
    """Add the merge to the evidence of a task."""
    evidence = run.evidence.get(task.id)
    if evidence is not None:
        run.write_evidence(
            msgspec.structs.replace(
                evidence, merged=landed.commit, merged_checks=tuple(results), dropped=landed.dropped
            )
        )
    for path, lines in landed.dropped.items():
        what = f"{len(lines)} line{'s' if len(lines) > 1 else ''} away that another task had added to {path}"
        if list(lines) == [WHOLE]:
            what = f"the change away that another task had made to {path}"
        run.say(f"task {task.id}: merging took {what}; the reviewer is asked to look")


def _conflict(conflict: Conflict) -> Try:
    paths = ", ".join(conflict.paths[:5])
    return Try(
        "merge",
        "Your work passed its checks, but other tasks have changed the same lines since you began, in "
        f"{paths}. Both sides, as git shows them (first theirs, then yours):\n\n{quoted(conflict.text)}\n\n"
        f"The branch `{TIP}` of this repository has their work. Put yours on top of it (`git rebase {TIP}`), keep what "
        "both sides intend, run the tests, and commit.",
        f"conflicts with other tasks in {paths}",
        shown=f"Both sides of the conflict (first the branch, then the task):\n\n{quoted(conflict.text)}",
    )


def _red(red: Sequence[CheckResult]) -> Try:
    return Try(
        "merge",
        "Your work passed its checks, but together with the work of other tasks it does not.\n\n"
        f"{check_output(red)}\n\nThe branch `{TIP}` of this repository has their work. Put yours on top of it "
        f"(`git rebase {TIP}`), find out why they do not fit together, fix it, and commit.",
        f"after merging, {said_of(red)}",
        shown=f"Together with the work of other tasks:\n\n{check_output(red)}",
    )


async def _send_back(ctx: Ralph, run: RunFolder, task: Task, problem: Try) -> NodeResult:
    """Return a task to its worker, or start it again from the tip, or give it up."""
    state = ctx.state
    failed = state.merges.get(task.id, 0) + 1
    problem = msgspec.structs.replace(problem, said=state.said.get(task.id, ""))
    update = {
        "merges": {task.id: failed},
        "returned": {task.id: problem},
        "came_back": {task.id: [*state.came_back.get(task.id, ()), problem.reason]},
    }
    evidence = run.evidence.get(task.id)
    if evidence is not None:
        reason = f"not merged: {problem.reason}"
        run.write_evidence(msgspec.structs.replace(evidence, status="failed", reason=reason))
    run.note(task.id, f"attempt {state.turns[task.id]} was not merged: {problem.reason}")
    if failed >= MAX_MERGES:
        return NodeResult(update, goto="give-up")
    tip = await run.tip()
    if failed != MAX_RETURNS + 1:
        run.say(f"task {task.id}: {problem.reason}; back to its worker")
        result = state.spans[task.id][-1].after.head
        assert result is not None
        await run.workspaces.bring_tip(task.id, tip, result)
        return NodeResult(update, goto="work")
    run.say(f"task {task.id}: {problem.reason}; it starts again from the work of the others")
    hint = await _hint(run, state.spans[task.id][-1])
    await run.workspaces.create(task.id, tip)
    again = msgspec.structs.replace(problem, trouble=hint)
    return NodeResult(
        {**update, "returned": {task.id: again}, "starts": {task.id: tip}, "spans": {task.id: []}}, goto="work"
    )


async def _hint(run: RunFolder, span: Span) -> str:
    patch, _ = await run.snapshots.patch(span.before, span.after, max_bytes=MAX_HINT)
    return (
        "Your work could not be merged with that of other tasks, so you begin again on top of theirs. This was your "
        f"change. Use what still fits:\n\n{quoted(run.redactor.text(patch), most=MAX_HINT, end=False)}"
    )


def unmerged(tries: Sequence[Try], returned: Try | None) -> str:
    """Return why a task could not be merged: both sides of a conflict, or red checks."""
    shown = [one.shown for one in (*tries, returned) if one is not None and one.shown]
    return shown[-1] if shown else ""
