"""`atomic discard ID`: remove a run's branch; its commits stay restorable."""

from __future__ import annotations

import asyncio

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.cli.run_branches import DISCARDED, RunWork, refuse_checked_out, refuse_running, require_work
from atomic.cli.streams import confirmed, has_terminal, put
from atomic.workspaces.run_branch import parked_prefix


def discard_command(arguments: Arguments) -> int:
    """Keep the branch's last commit below `refs/atomic/`, then remove the branch."""
    work = require_work(arguments.words[0], "discard")
    refuse_running(work, "discard")
    tip = asyncio.run(_check(work))
    if not arguments.has("--yes"):
        if not has_terminal():
            raise UsageError(
                f"There is no terminal to ask in: atomic discard {work.short} --yes removes the branch {work.name}"
            )
        if not confirmed(f"Remove the branch {work.name}? atomic salvage can still restore its files. [y/N] "):
            put("Nothing was removed.\n")
            return ExitCode.DONE
    name = asyncio.run(_discard(work, tip))
    put(
        f"{work.name} is removed.\n"
        f"atomic salvage {work.short} {name} restores its files, until atomic sessions prune deletes them\n"
    )
    return ExitCode.DONE


async def _check(work: RunWork) -> str:
    tip = await work.require_tip()
    await refuse_checked_out(work, "discard")
    return tip


async def _discard(work: RunWork, tip: str) -> str:
    """Move a branch to a free name below `refs/atomic/`, in one step. Return the name."""
    prefix = parked_prefix(work.id)
    listed = await work.repository.git("for-each-ref", "--format=%(refname)", prefix)
    # A task may have the name too, and is the folder of its attempts.
    taken = {ref.removeprefix(prefix).partition("/")[0] for ref in listed.splitlines()}
    name = DISCARDED
    number = 1
    while name in taken:  # the branch was made again after it had been discarded
        number += 1
        name = f"{DISCARDED}-{number}"
    orders = f"create {prefix}{name} {tip}\ndelete {work.branch.ref} {tip}\n"
    await work.repository.git("update-ref", "--stdin", input=orders)
    return name
