"""Make recorded changes in a workspace, by a program that runs in it.

A workspace may show files that Atomic itself does not see. So this module is also a
program: `python -m atomic.git.apply_elsewhere FOLDER` reads an order from its standard
input, makes the changes, and prints the result.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from atomic.git.apply import PatchError, apply_changes
from atomic.git.folder_changes import Changes
from atomic.processes import ExecError, execute

_TIMEOUT = 600.0


class _Order(msgspec.Struct, frozen=True):
    changes: Changes
    own_commits: list[str]


class _Result(msgspec.Struct, frozen=True):
    """The new commits, or why nothing was changed."""

    commits: list[str] = []
    problem: str = ""


async def apply_changes_in(
    launcher: Sequence[str], folder: Path, changes: Changes, *, own_commits: Collection[str] = ()
) -> list[str]:
    """Do what `apply_changes` does, in the workspace that `launcher` starts programs
    in.

    Raises PatchError.
    """
    order = msgspec.json.encode(_Order(changes, sorted(own_commits)))
    words = (*launcher, sys.executable, "-P", "-m", __name__, str(folder))
    try:
        done = await execute(*words, cwd="/", env=dict(os.environ), input=order, timeout=_TIMEOUT)
        result = msgspec.json.decode(done.stdout, type=_Result)
    except (ExecError, msgspec.DecodeError) as error:
        raise PatchError(f"The changes could not be made in the workspace of {folder}: {error}") from error
    if result.problem:
        raise PatchError(result.problem)
    return result.commits


def main() -> None:
    """Make the changes that standard input describes, and print the result."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=_Order)
    try:
        commits = asyncio.run(apply_changes(sys.argv[1], order.changes, own_commits=order.own_commits))
        result = _Result(commits)
    except PatchError as error:
        result = _Result(problem=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
