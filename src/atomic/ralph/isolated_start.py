"""The start of a run with workspaces: the branch, the base, and the checks in it.

The checks run in a copy and in the state of the user's checkout. If they fail only in
the copy, something is missing there, and the run stops before anything is paid.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from atomic.base.terminal import one_line
from atomic.git import GitError
from atomic.graph import RunStatus, Suspend
from atomic.ralph.checks import ended_by_itself
from atomic.ralph.evidence import CheckResult
from atomic.ralph.file_names import named
from atomic.ralph.options import check_operation, check_writable, red_checks_of
from atomic.ralph.red_checks import MAX_OUTPUT
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.workspaces import BranchMovedError, IsolationKind, RunBranch, WorkspaceError

_MOST_TESTS = 5  # names in a sentence


async def prepare_workspaces(ctx: Ralph, run: RunFolder) -> RunBranch | None:
    """Make the run's branch and the base of its workspaces.

    Return None if the run must work in the checkout itself. Raises IsolationError,
    StartError, Suspend.
    """
    options = run.options
    try:
        begun = await run.workspaces.begin(options.isolate, include_uncommitted=options.include_uncommitted)
    except (WorkspaceError, BranchMovedError, GitError) as error:
        raise Suspend(str(error), status=RunStatus.BLOCKED, code="workspace") from error
    if isinstance(begun, str):
        if options.isolate != "none":
            run.say(f"works in your checkout itself, one task at a time: {begun}")
            check_operation(str(run.cwd))
            check_writable(str(run.cwd))
        return None
    await _require_folder(run, begun)
    if ctx.attempt > 1:  # the user may have changed the files meanwhile
        run.checks.forget_baseline()
    return begun


async def _require_folder(run: RunFolder, branch: RunBranch) -> None:
    """Raise Suspend if a copy of the project does not have the folder of the run."""
    base = await run.workspaces.base()
    root = run.workspaces.repository.root
    folder = await asyncio.to_thread(_missing_folder, run.cwd, root, base.folder)
    if not folder:
        return
    choices = [f"in {one_line(str(root))}", "with --isolate none"]
    loose = [] if branch.first != branch.start else await run.workspaces.uncommitted()
    # A new folder is listed without its files.
    if any(path.startswith(folder) or (path.endswith("/") and folder.startswith(path)) for path in loose):
        choices.insert(0, "with --include-uncommitted")
    raise Suspend(
        f"Commit {branch.first[:7]}, with which {branch.name} begins, has no folder {one_line(folder)}, in which the"
        f" run was started, so its workers would not have it. Nothing was paid. Commit a file in it, then atomic resume"
        f" {run.session.name}; or start again {' or '.join(choices)}",
        status=RunStatus.BLOCKED,
        code="workspace",
    )


def _missing_folder(cwd: Path, root: Path, base: Path) -> str:
    """Return the folder of the run in the repository if the base does not have it, else
    an empty text.
    """
    folder = os.path.relpath(os.path.realpath(cwd), os.path.realpath(root))
    is_there = folder.startswith(os.pardir) or (base / folder).is_dir()
    return "" if is_there else f"{folder}/"


async def announce(run: RunFolder, branch: RunBranch) -> None:
    """Print what the user must know about the workspaces of the run."""
    for reason in branch.reasons:
        run.inform(f"workspaces are copies ({branch.kind}), because {reason}")
    if branch.kind is IsolationKind.CLONE and not branch.guarded:
        run.inform("nothing keeps a worker that uses the path of your checkout from writing there: no namespaces here")
    if run.workspaces.left_out:
        run.inform(run.workspaces.left_out)
    if branch.first == branch.start and (loose := await run.workspaces.uncommitted()):
        run.inform(
            "your uncommitted files are not part of the run, which begins with your last commit: "
            f"{named(loose, most=5)} (--include-uncommitted adds them)"
        )
    if branch.first != branch.start:
        files = sorted(await run.workspaces.repository.differing(branch.start, branch.first))
        run.inform(
            f"the first commit of {branch.name} has your uncommitted files: {named(files, most=5)}. Leave them as they "
            "are until the run is merged, or commit or stash them before"
        )


async def take_baseline(ctx: Ralph, run: RunFolder, branch: RunBranch) -> list[CheckResult]:
    """Run the checks before anything has changed, in a new workspace and in the state of
    the user's checkout.

    Return the red ones that the user must decide about. Of a red check whose tests are
    known, these tests may fail until the end. Raises Suspend if a check fails only in
    the workspace.
    """
    if not run.checks.chosen:
        return []
    timeout = run.options.gate_timeout
    async with run.timed("check"):
        async with run.workspaces.fresh("baseline", branch.first) as view:
            results = await run.checks.take_baseline(run.cwd, timeout, view=view)
        is_decided = bool(red_checks_of(ctx.deps.config))
        if results and not is_decided:
            await _compare(run, branch, results)
    red = [one for one in results if one.exit_code != 0]
    if is_decided or run.options.mode == "yolo":  # then the whole check is the goal
        return red
    known = [one.command for one in red if one.tests is not None and one.tests.failed and ended_by_itself(one)]
    run.checks.tolerate(known)
    return [one for one in red if one.command not in known]


async def _compare(run: RunFolder, branch: RunBranch, results: Sequence[CheckResult]) -> None:
    """Compare the results in a workspace with those in the state of the checkout.

    Raises Suspend if the workspace is worse.
    """
    try:
        async with run.workspaces.checkout() as view:
            own = await run.checks.check_once(run.cwd, run.options.gate_timeout, view)
    except WorkspaceError as error:
        run.say(f"the checks were not run in the state of your checkout: {error}")
        return
    dirty: Sequence[str] = () if branch.first != branch.start else await run.workspaces.uncommitted()
    by_command = {one.command: one for one in own}
    for result in results:
        there = by_command[result.command]
        difference = _difference(result, there, is_dirty=bool(dirty))
        if difference:
            raise Suspend(_explain(run, result, there, difference, dirty), status=RunStatus.BLOCKED, code="workspace")
        if result.exit_code == 0 and there.exit_code != 0:
            run.say(f"{result.command} is red in your checkout, and green in a copy of your last commit")


def _difference(copy: CheckResult, own: CheckResult, *, is_dirty: bool) -> str:
    """Return what fails or is missing only in a copy of the project; empty if nothing."""
    if copy.exit_code != 0 and own.exit_code == 0:
        return f"passes in your checkout and fails in a copy of it (exit code {copy.exit_code})"
    if copy.tests is None or own.tests is None or copy.tests.runner != own.tests.runner:
        return ""
    only_there = sorted({*copy.tests.failed} - {*own.tests.failed})
    if copy.exit_code != 0 and only_there:
        names = ", ".join(only_there[:_MOST_TESTS]) + (" and others" if len(only_there) > _MOST_TESTS else "")
        return f"has tests that fail only in a copy of your checkout: {names}"
    # Tests that are not committed yet are not missing.
    if not is_dirty and copy.tests.total < own.tests.total:
        return f"runs {own.tests.total} tests in your checkout and only {copy.tests.total} in a copy of it"
    return ""


def _explain(run: RunFolder, copy: CheckResult, own: CheckResult, difference: str, dirty: Sequence[str]) -> str:
    reason = "Something that it needs is missing in the copy, or it uses the path of your checkout"
    if dirty:
        reason = (
            f"The copy begins with your last commit, without {named(dirty, most=3)} (--include-uncommitted adds them),"
            " or something that it needs is missing there"
        )
    return (
        f"The check `{copy.command}` {difference}. {reason}. Nothing was paid. Name ignored files that it needs in"
        f' .worktreeinclude, or set `setup` of [workspace] in your config.toml (such as "npm ci"), then'
        f" atomic resume {run.session.name}; or start again with --isolate none. What it printed:"
        f"\n--- in the copy:\n{_last_lines(copy)}\n--- in your checkout:\n{_last_lines(own)}"
    )


def _last_lines(check: CheckResult) -> str:
    """Return the end of a check's output, each line on its own."""
    return check.output_tail.strip()[-MAX_OUTPUT:] or "(nothing)"
