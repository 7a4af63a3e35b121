"""The node of `--accept`: merge the run's branch into the user's, if that is a
fast-forward.
"""

from __future__ import annotations

from atomic.git import GitError
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.workflows import NodeResult
from atomic.workspaces.acceptance import Acceptance
from atomic.workspaces.branch_merges import BranchError
from atomic.workspaces.run_branch import AcceptResult


async def accept(ctx: Ralph) -> NodeResult:
    """Merge the run's branch as `atomic accept` does, or say why not.

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
