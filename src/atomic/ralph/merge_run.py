"""A run that merges the branch of another run with the user's branch.

`atomic accept ID --fix` starts it. It has one task, known from the start, for a fixer.
The merge of both commits exists as a commit before anyone works on it, with conflict
markers where both sides change the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.base.terminal import one_line
from atomic.git.calls import split
from atomic.graph import Suspend
from atomic.ralph.checks import CheckHistory
from atomic.ralph.options import most_iterations
from atomic.ralph.prompts import quoted
from atomic.ralph.run_folder import Ralph, RunFolder, read_turns
from atomic.ralph.state import MAX_ATTEMPTS, Span, Try
from atomic.sessions.facts import Facts
from atomic.tasks import Task, TaskList
from atomic.workflows import END, NodeResult
from atomic.workspaces import WHOLE, BranchCheckedOutError, Conflict, RunBranch, Work, find_dropped, move_branch
from atomic.workspaces.branch_merges import commit_tree, merge_message, merge_trees, named, tree_of

CONFIG = "merges"  # the key in the config of the run; there is no flag of that name
TASK = "merge"
_FACT = "merge"
_COMMIT = "commit"
_MAX_SIDES = 20_000  # characters of a diff with conflicts
_MAX_GOAL = 4_000


class MergeRequest(msgspec.Struct, frozen=True):
    """Which run's branch to merge with the user's branch."""

    run: str
    branch: RunBranch
    tip: str  # the commit of the run's branch
    head: str  # the commit of the user's branch when the merge was asked for
    target: str  # the name of the user's branch
    goal: str = ""  # the prompt of the run


class _Merge(msgspec.Struct, frozen=True):
    """A fact: the commit that the work starts with, the user's commit in it, and the
    files with conflicts.
    """

    commit: str
    head: str
    conflicts: tuple[str, ...] = ()


def merge_config(request: MergeRequest, facts: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a run that merges the branch of another one.

    `facts` and `config` are those of the other run: the merge has its checks, and what
    is left of its turns.
    """
    most = most_iterations(config)
    left = max(1, most - read_turns(facts).turns) if most else 0
    return {
        **config,
        "tasks": "",
        "feature_list": "",
        "yolo": False,
        "max_iterations": left,
        "workers": 1,
        "isolate": str(request.branch.kind),
        "include_uncommitted": False,
        "accept": False,
        "verify": CheckHistory(facts).commands,
        "review_rounds": 0,
        "reviewers": 1,
        "pr": False,
        "dry_run": False,
        CONFIG: msgspec.to_builtins(request),
    }


def find_request(config: Mapping[str, Any]) -> MergeRequest | None:
    """Return what a run merges; None for any other run."""
    found = config.get(CONFIG)
    return None if found is None else msgspec.convert(found, MergeRequest)


def is_merge(ctx: Ralph) -> bool:
    """Return whether the current task is the merge of such a run."""
    return ctx.item.id == TASK and CONFIG in ctx.deps.config


async def plan(ctx: Ralph, request: MergeRequest) -> NodeResult:
    """Merge both commits, as a commit that only this run knows, and write the task."""
    run = RunFolder(ctx)
    repository = run.workspaces.repository
    head = run.workspaces.required_branch.first  # the user may have committed since the request
    merged = await merge_trees(repository, head, request.tip)
    commit = await commit_tree(repository, merged.tree, [head, request.tip], "Merge, unfinished\n")
    await repository.git("update-ref", run.workspaces.ref(TASK, 0), commit)
    run.facts.set(_FACT, _Merge(commit, head, merged.conflicts))
    sides = ""
    if merged.conflicts:
        words = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", head, commit, "--", *merged.conflicts)
        sides = run.redactor.text(await repository.git(*words))
        run.say(f"{request.branch.name} and {request.target} conflict in {named(merged.conflicts)}")
    task = Task(
        TASK,
        f"Merge {request.branch.name} into {request.target}",
        _description(request, head, merged.messages, sides),
        metadata={"role": "fixer", "repairs": TASK},
    )
    run.write_tasks(TaskList([task]))
    return NodeResult({"planned": True})


def _description(request: MergeRequest, head: str, conflicts: tuple[str, ...], sides: str) -> str:
    parts = [
        (
            f"Two branches have changed since they split: the user's branch {request.target} ({head[:12]}), and "
            f"{request.branch.name} ({request.tip[:12]}) with the work of a run. HEAD of your repository merges them. "
            f"`git log -p {request.tip}..{head}` shows what the user has done, and "
            f"`git log -p {head}..{request.tip}` what the run has done."
        )
    ]
    if conflicts:
        parts.append(
            "Some files could not be merged. Between `<<<<<<<` and `=======` are the lines of the user, up to "
            "`>>>>>>>` those of the run. Resolve each conflict so that the result does what both sides intend. Leave "
            "no marker, and drop no change of either side."
        )
        parts.append("\n".join(f"- {one_line(conflict)}" for conflict in conflicts))
        parts.append(quoted(sides, most=_MAX_SIDES, end=False))
    else:
        parts.append("Git could merge all files, but the checks fail on the result. Keep what both sides intend.")
    if request.goal:
        parts.append(f"The goal of the run was:\n\n{quoted(request.goal, most=_MAX_GOAL, end=False)}")
    return "\n\n".join(parts)


async def begin(ctx: Ralph) -> NodeResult:
    """Make a workspace of the unfinished merge. Without conflicts it is checked first."""
    run = RunFolder(ctx)
    run.check_folder()
    start = _read_merge(run.facts)
    await run.workspaces.create(TASK, start.commit, start=start.head)
    update: dict[str, Any] = {"starts": {TASK: start.head}, "spans": {TASK: []}}
    if start.conflicts:
        return NodeResult(update)
    span = Span(await run.snapshot_of(start.head), await run.snapshot_of(start.commit))
    turns = ctx.state.turns.get(TASK, 0)
    return NodeResult({**update, "spans": {TASK: [span]}, "turns": {TASK: turns}, "broken": {TASK: ""}}, goto="gate")


async def bring_back(ctx: Ralph) -> None:
    """Make the workspace of the merge again if its folder is gone before a turn."""
    run = RunFolder(ctx)
    start = _read_merge(run.facts)
    workspace = await run.workspaces.workspace(TASK)
    if not workspace.exists and not ctx.state.spans.get(TASK):
        await run.workspaces.create(TASK, start.commit, start=start.head)


async def merge(ctx: Ralph) -> NodeResult:
    """Put the merge on the branch of this run and of the other one."""
    run = RunFolder(ctx)
    run.check_folder()
    request = find_request(ctx.deps.config)
    assert request is not None  # `is_merge` has looked
    start = _read_merge(run.facts)
    snapshot = ctx.state.spans[TASK][-1].after
    assert snapshot.head is not None
    problem = await _find_problem(run, request, start, snapshot.head)
    if problem is not None:
        return _send_back(ctx, run, problem)
    commit = ctx.remembered(_COMMIT)
    if commit is None:
        commit = await _commit(run, request, start.head, snapshot.head)
        await ctx.remember(_COMMIT, commit)
    work = Work(TASK, ctx.item.title, ctx.state.turns[TASK], start.head, commit)
    landed = await ctx.deps.merge(work)
    if isinstance(landed, Conflict):  # only if another program has moved the branch of this run
        raise Suspend(f"The branch of this run has moved, and the merge is commit {commit[:12]}", code="branch_changed")
    await _hand_over(run, request, commit)
    await run.workspaces.remove(TASK)
    return NodeResult(goto=END)


async def _find_problem(run: RunFolder, request: MergeRequest, start: _Merge, result: str) -> Try | None:
    """Return what a fixer has not resolved."""
    repository = run.workspaces.repository
    for side in (start.head, request.tip):
        if not await repository.is_ancestor(side, result):
            reason = f"the fixer's commits do not contain {side[:12]}"
            begun = start.commit[:12]
            return Try(
                "merge",
                f"Your last commit does not contain {side[:12]}, one side of the merge. If your files are as they "
                f"should be: `git reset --soft {begun}`, and commit. Otherwise begin again with `git reset --hard "
                f"{begun}`. Only add commits.",
                reason,
            )
    if not start.conflicts:
        return None
    left = await _with_markers(run, request, start, result)
    if left:
        reason = f"conflict markers are left in {named(left)}"
        return Try("merge", f"When your turn had ended, {reason}. Resolve these conflicts too.", reason)
    if await tree_of(repository, result) == await tree_of(repository, start.commit):
        reason = f"no conflict in {named(start.conflicts)} was resolved"
        return Try("merge", f"When your turn had ended, {reason}: no file has changed.", reason)
    return None


async def _with_markers(run: RunFolder, request: MergeRequest, start: _Merge, result: str) -> list[str]:
    """Return the files that have markers of this merge, which name its commits."""
    found: set[str] = set()
    for marker in (f"<<<<<<< {start.head}", f">>>>>>> {request.tip}"):
        words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", f"-S{marker}", start.head, result)
        found.update(split(await run.workspaces.repository.git(*words)))
    return sorted(found)


def _send_back(ctx: Ralph, run: RunFolder, problem: Try) -> NodeResult:
    state = ctx.state
    failed = state.merges.get(TASK, 0) + 1
    problem = msgspec.structs.replace(problem, said=state.said.get(TASK, ""))
    run.note(TASK, f"attempt {state.turns[TASK]} was not merged: {problem.reason}")
    update = {"merges": {TASK: failed}, "returned": {TASK: problem}}
    if failed >= MAX_ATTEMPTS:
        return NodeResult(update, goto="give-up")
    run.say(f"{problem.reason}; back to the fixer ({failed + 1} of {MAX_ATTEMPTS})")
    return NodeResult(update, goto="work")


async def _commit(run: RunFolder, request: MergeRequest, head: str, result: str) -> str:
    """Write one commit with both sides as parents and the files of the result."""
    repository = run.workspaces.repository
    subject = f"Merge branch '{request.target}' into {request.branch.name}"
    message = await merge_message(repository, request.branch, request.run, subject, request.tip)
    parents = [head, request.tip]
    commit = await commit_tree(repository, await tree_of(repository, result), parents, message)
    base = (await repository.git("merge-base", *parents)).strip()
    for side, name in ((head, request.target), (request.tip, request.branch.name)):
        for path, lines in (await find_dropped(repository, start=base, tip=side, merged=commit)).items():
            what = f"{len(lines)} line{'s' if len(lines) > 1 else ''} away that {name} had added to {path}"
            if lines == [WHOLE]:
                what = f"the change away that {name} had made to {path}"
            run.say(f"the merge took {what}: look at it")
    return commit


async def _hand_over(run: RunFolder, request: MergeRequest, commit: str) -> None:
    """Move the branch of the other run to the merge, unless it has moved or is checked
    out.
    """
    repository = run.workspaces.repository
    branch = request.branch
    try:
        if await move_branch(repository, branch.name, commit, request.tip):
            return
        reason = "has moved meanwhile"
    except BranchCheckedOutError as error:
        reason = f"is checked out in {error.folder}"
    id = run.session.name[:8]
    run.say(
        f"{branch.name} {reason}, so the merge is only on {run.workspaces.required_branch.name}: atomic accept {id}"
    )


def _read_merge(facts: Facts) -> _Merge:
    return msgspec.convert(facts[_FACT], _Merge)
