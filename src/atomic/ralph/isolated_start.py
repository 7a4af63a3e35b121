"""The start of a run with workspaces: the branch, the base, and the checks in it."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.git import GitError
from atomic.git.calls import split
from atomic.graph import Suspend
from atomic.ralph.evidence import CheckResult
from atomic.ralph.file_names import named
from atomic.ralph.options import check_operation
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.workspaces import BranchMovedError, RunBranch, WorkspaceError


async def prepare_workspaces(ctx: Ralph, run: RunFolder) -> RunBranch | None:
    """Make the run's branch and the base of its workspaces.

    Return None if the run must work in the checkout itself. Raises IsolationError,
    StartError, Suspend.
    """
    options = run.options
    try:
        begun = await run.workspaces.begin(options.isolate, include_uncommitted=options.include_uncommitted)
    except (WorkspaceError, BranchMovedError, GitError) as error:
        raise Suspend(str(error), code="workspace") from error
    if isinstance(begun, str):
        if options.isolate != "none":
            run.say(f"works in your checkout itself, one task at a time: {begun}")
            check_operation(str(run.cwd))
        return None
    if ctx.attempt == 1:
        await _announce(run, begun)
    return begun


async def _announce(run: RunFolder, branch: RunBranch) -> None:
    for reason in branch.reasons:
        run.say(f"workspaces are copies ({branch.kind}), because {reason}")
    workers = run.options.workers
    who = "one worker, in its own copy" if workers == 1 else f"{workers} workers, each in its own copy"
    source = branch.upstream or "a detached HEAD"
    run.say(f"branch {branch.name} from {source} ({branch.start[:7]}) · {who} of the project ({branch.kind})")
    if branch.first == branch.start and (loose := await _uncommitted(run)):
        run.say(
            "your uncommitted files are not part of the run, which begins with your last commit: "
            f"{named(loose, most=5)} (--include-uncommitted adds them)"
        )


async def _uncommitted(run: RunFolder) -> Sequence[str]:
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty")
    return [entry[3:] for entry in split(await run.workspaces.repository.git(*words))]


async def take_baseline(ctx: Ralph, run: RunFolder, commit: str) -> list[CheckResult]:
    """Run the checks in a new workspace, before anything has changed, and return the
    red ones.
    """
    if not run.checks.chosen:
        return []
    async with run.timed("check"), run.workspaces.fresh("baseline", commit) as view:
        return await run.checks.take_baseline(run.cwd, run.options.gate_timeout, again=ctx.attempt > 1, view=view)
