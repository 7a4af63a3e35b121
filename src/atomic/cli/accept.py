"""`atomic accept ID`: merge a run's branch into the branch of the user's checkout."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli.errors import CliError
from atomic.cli.last_end import find_reason
from atomic.cli.run_branches import RunWork, find_undone_of, refuse_running, require_work
from atomic.cli.streams import confirmed, has_terminal, put, tell
from atomic.graph import JournalError, RunOwnedError
from atomic.sessions.facts import Facts
from atomic.sessions.model import SessionStatus
from atomic.workspaces.acceptance import Acceptance, Accepted, Outlook
from atomic.workspaces.branch_merges import named
from atomic.workspaces.run_branch import FACT, AcceptResult, read_branch


def accept_command(arguments: Arguments) -> int:
    """Merge the branch, or refuse before anything has changed."""
    if arguments.has("--fix") and arguments.has("--unchecked"):
        raise UsageError("--fix runs the checks and --unchecked leaves them out: choose one")
    work = require_work(next(iter(arguments.words), None), "accept")
    refuse_running(work, "accept")
    if not work.branch.landed and asyncio.run(work.find_tip()) in ("", work.branch.first):
        record = work.session.record
        if record.status in (SessionStatus.COMPLETED, SessionStatus.CANCELLED):
            raise CliError(f"Run {work.short} has done no task: there is nothing to merge")
        raise CliError(f"No task of run {work.short} is done yet: resume it with atomic resume {work.id}")
    unfinished = _name_ending(work)
    if unfinished:
        tell(unfinished)
    undone = _name_tasks(asyncio.run(find_undone_of(work)))
    acceptance = Acceptance(work.repository, work.branch, work.id, prompt=work.session.record.prompt)
    outlook = asyncio.run(_look(work, acceptance))
    is_checked = False
    needs_checks = outlook.has_moved or bool(undone)
    if needs_checks and (arguments.has("--fix") or _wants_checks(arguments, _offer(work, outlook, undone))):
        asyncio.run(acceptance.check_files(outlook))
        from atomic.cli.accept_fix import fix_merge

        code = fix_merge(work, outlook)
        if code != ExitCode.DONE:
            return code
        outlook = asyncio.run(_look_again(work, acceptance, outlook.target))
        is_checked = not outlook.has_moved
    if outlook.conflicts:
        by_hand = f"git merge {work.name} by hand in {work.repository.root}"
        if has_terminal() and not is_checked:
            raise CliError(f"Nothing was changed: {by_hand}, and resolve the conflicts")
        raise CliError(
            f"{_conflict(work, outlook)}, and nothing was changed: atomic accept {work.short} --fix lets an agent "
            f"resolve it in a workspace, or {by_hand}"
        )
    if undone and not is_checked and not arguments.has("--unchecked"):
        if not has_terminal():
            raise CliError(
                f"{undone} undone, and no check has run on {work.name} since: atomic accept {work.short} --fix runs"
                " the checks first, --unchecked merges without them"
            )
        if not confirmed("Merge it without a check? [y/N] "):
            raise CliError("Nothing was merged")
    accepted = asyncio.run(acceptance.merge(outlook, squash=arguments.has("--squash")))
    from atomic.cli.accept_fix import remove_fixed_branches

    asyncio.run(remove_fixed_branches(work, accepted.commit))
    _keep_result(work, accepted)
    note = f"\n{undone} undone, so the merge does not have it" if undone else ""
    if unfinished:
        note += f"\n{unfinished}, and its work is merged as it is"
    if outlook.has_moved and not is_checked:
        note += f"\nNo check has run on the merge: {outlook.target} had commits that {work.name} did not have"
    elif undone and not is_checked:
        note += "\nNo check has run on the result"
    put(f"{accepted}{note}\n")
    return ExitCode.DONE


def _keep_result(work: RunWork, accepted: Accepted) -> None:
    """Record the merge in the run, so that a resume does not offer it again."""
    session = work.session
    result = AcceptResult(accepted.target, accepted.commit)
    try:
        with closing(session.journal()) as journal:
            facts = Facts(session.dir, session.redactor)
            facts.open(journal, session.id)
            branch = read_branch(facts)
            if branch is not None:
                facts.set(FACT, msgspec.structs.replace(branch, accept_result=result))
    except (JournalError, RunOwnedError, OSError) as error:
        tell(f"the merge is made, but run {work.short} cannot record it, and will offer it again: {error}")


def _name_ending(work: RunWork) -> str:
    """Return that a run has stopped before it was done, and why; empty if it was done."""
    status = work.session.record.status
    if status not in (SessionStatus.BLOCKED, SessionStatus.FAILED):
        return ""
    reason = one_line(find_reason(work.session)) or work.session.record.reason.replace("_", " ")
    return f"run {work.short} is {status}: {reason}" if reason else f"run {work.short} is {status}"


def _name_tasks(undone: Sequence[str]) -> str:
    """Return the beginning of a sentence about undone tasks; empty without any."""
    if not undone:
        return ""
    if len(undone) == 1:
        return f"Task {one_line(undone[0])} was"
    return f"Tasks {', '.join(one_line(task) for task in undone)} were"


def _wants_checks(arguments: Arguments, offer: str) -> bool:
    """Ask whether to run the checks first."""
    return not arguments.has("--unchecked") and confirmed(offer)


async def _look(work: RunWork, acceptance: Acceptance) -> Outlook:
    return await acceptance.look(await work.require_tip(), confirm=confirmed)


async def _look_again(work: RunWork, acceptance: Acceptance, target: str) -> Outlook:
    """Look at a branch whose merge into `target` the user has wanted already.

    Raises CliError if the checkout is on another branch now.
    """
    outlook = await acceptance.look(await work.require_tip(), confirm=lambda question: True)
    if outlook.target != target:
        raise CliError(
            f"Your checkout is on {outlook.target} now, and nothing was merged: the merge with {target} is on "
            f"{work.name}. git switch {target}, then atomic accept {work.short}"
        )
    return outlook


def _offer(work: RunWork, outlook: Outlook, undone: str) -> str:
    """Return the question whether to work on a merge in a workspace."""
    if outlook.conflicts:
        return (
            f"{_conflict(work, outlook)}.\nA fixer can resolve it in a workspace; then the checks run on the result.\n"
            "A fixer is an agent: it may cost money, within what is left of the run's caps.\nStart it? [y/N] "
        )
    if not outlook.has_moved:
        return (
            f"{undone} undone, and no check has run on {work.name} since.\n"
            "The checks can run on it first. If they fail, a fixer repairs it,\n"
            "which may cost money, within what is left of the run's caps.\n"
            "Run the checks first? [y/N] "
        )
    return (
        f"{outlook.target} has commits that {work.name} does not have.\nThe checks can run on the merge of both first. "
        "If they fail, a fixer repairs it,\nwhich may cost money, within what is left of the run's caps.\n"
        "Run the checks first? [y/N] "
    )


def _conflict(work: RunWork, outlook: Outlook) -> str:
    return f"{work.name} and {outlook.target} conflict in {named(outlook.conflicts)}"
