"""The branch of a run: where it began, its last commit, and what each task added.

It is a fact of the run, in its journal. Only Atomic moves the branch. The ref is
compared with the fact before each move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.workspaces.isolation import IsolationKind

FACT = "branch"
PREFIX = "atomic/"
PARKED = "refs/atomic"


class Landed(msgspec.Struct, frozen=True):
    """The commits of a task on the run's branch: all after `base`, up to `commit`, and
    the commits of its former parts.

    `dropped` are lines, by path, that other tasks had added since this task began and
    that its merge took away.
    """

    task: str
    title: str
    attempt: int
    base: str
    commit: str
    dropped: Mapping[str, Sequence[str]] = {}
    sources: tuple[str, ...] = ()  # the commits of the task before they were put on top of the branch
    former: tuple[tuple[str, str], ...] = ()  # `base` and `commit` of its parts that landed before other tasks

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Return the commits before and after each part of the task, the oldest first.

        A task that continued after others had landed has several parts.
        """
        return *self.former, (self.base, self.commit)


class Work(msgspec.Struct, frozen=True):
    """The work done in a workspace: the commits after `start`, up to `commit`.

    Everything that was in the workspace is kept at `ref` of the user's repository.
    """

    name: str  # of the workspace
    title: str
    attempt: int
    start: str
    commit: str
    base: str = ""  # the commit of the run's branch that it builds on; empty if it has left that history
    unfinished: str = ""  # the command of git that it has left unfinished, such as a rebase
    ref: str = ""
    former: tuple[str, ...] = ()  # the commits of works that this one continues

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was changed."""
        return self.commit == self.start


class AcceptResult(msgspec.Struct, frozen=True):
    """The result of `--accept` at the end of a run.

    The user's branch and the commit that it was moved to, or why it was not moved.
    """

    target: str = ""
    commit: str = ""
    problem: str = ""


class RunBranch(msgspec.Struct, frozen=True):
    """The branch of a run in the user's repository, and how its workers are kept apart."""

    name: str  # without refs/heads/
    kind: IsolationKind
    root: str  # of the user's checkout
    start: str  # the user's commit when the run began
    first: str  # `start`, or the commit of the user's uncommitted files on top of it
    tip: str  # the commit that Atomic moved the branch to last
    upstream: str = ""  # the user's branch when the run began; empty if HEAD was detached
    own_user: bool = False
    guarded: bool = False  # a clone: its programs cannot write to the user's checkout
    setup: str = ""  # the command that set the base up
    reasons: tuple[str, ...] = ()  # why other kinds of workspaces do not work here
    replaced: str = ""  # the commit that the branch had before it was begun again
    landed: tuple[Landed, ...] = ()
    landing: Landed | None = None  # where the branch is about to move
    accept_result: AcceptResult | None = None  # of `--accept`

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"


def branch_name(run: str) -> str:
    """Return the name of a run's branch."""
    return f"{PREFIX}{run[:8]}"


def parked_prefix(run: str) -> str:
    """Return the beginning of the refs that keep a run's workspaces."""
    return f"{PARKED}/{run}/"


def read_branch(facts: Mapping[str, Any]) -> RunBranch | None:
    """Return the branch of a run; None if it works in the user's checkout."""
    found = facts.get(FACT)
    return None if found is None else msgspec.convert(found, RunBranch)
