"""`atomic accept ID`: merge a run's branch into the branch of the user's checkout."""

from __future__ import annotations

import asyncio

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli.errors import CliError
from atomic.cli.run_branches import RunWork, refuse_running, require_work
from atomic.cli.streams import confirmed, has_terminal, put
from atomic.workspaces.acceptance import Acceptance, Outlook
from atomic.workspaces.branch_merges import named


def accept_command(arguments: Arguments) -> int:
    """Merge the branch, or refuse before anything has changed."""
    work = require_work(arguments.words[0], "accept")
    refuse_running(work, "accept")
    acceptance = Acceptance(work.repository, work.branch, work.id, prompt=work.session.record.prompt)
    outlook = asyncio.run(_look(work, acceptance))
    is_checked = False
    if outlook.has_moved and (arguments.has("--fix") or confirmed(_offer(work, outlook))):
        from atomic.cli.accept_fix import fix_merge

        asyncio.run(acceptance.check_files(outlook))
        code = fix_merge(work, outlook)
        if code != ExitCode.DONE:
            return code
        outlook = asyncio.run(_look_again(work, acceptance))
        is_checked = True
    if outlook.conflicts:
        by_hand = f"git merge {work.name} by hand in {work.repository.root}"
        if has_terminal() and not is_checked:
            raise CliError(f"Nothing was changed: {by_hand}, and resolve the conflicts")
        raise CliError(
            f"{_conflict(work, outlook)}, and nothing was changed: atomic accept {work.short} --fix lets an agent "
            f"resolve it in a workspace, or {by_hand}"
        )
    accepted = asyncio.run(acceptance.merge(outlook, squash=arguments.has("--squash")))
    note = ""
    if outlook.has_moved and not is_checked:
        note = f"\nNo check has run on the merge: {outlook.target} had commits that {work.name} did not have"
    put(f"{accepted}{note}\n")
    return ExitCode.DONE


async def _look(work: RunWork, acceptance: Acceptance) -> Outlook:
    return await acceptance.look(await work.require_tip(), confirm=confirmed)


async def _look_again(work: RunWork, acceptance: Acceptance) -> Outlook:
    """Look at a branch whose merge the user has wanted already."""
    return await acceptance.look(await work.require_tip(), confirm=lambda question: True)


def _offer(work: RunWork, outlook: Outlook) -> str:
    """Return the question whether to work on a merge in a workspace."""
    if outlook.conflicts:
        return (
            f"{_conflict(work, outlook)}.\nA fixer can resolve it in a workspace; then the checks run on the result.\n"
            "A fixer is an agent: it may cost money, within what is left of the run's caps.\nStart it? [y/N] "
        )
    return (
        f"{outlook.target} has commits that {work.name} does not have.\nThe checks can run on the merge of both first. "
        "If they fail, a fixer repairs it,\nwhich may cost money, within what is left of the run's caps.\n"
        "Run the checks first? [y/N] "
    )


def _conflict(work: RunWork, outlook: Outlook) -> str:
    return f"{work.name} and {outlook.target} conflict in {named(outlook.conflicts)}"
