"""How the steps of a run are isolated: the user's choice, and what the user is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atomic.git import find_repository
from atomic.workspaces import IsolationError, IsolationKind, RunBranch

KINDS = ("auto", *(kind for kind in IsolationKind if kind is not IsolationKind.NONE), "worktree")
MAX_NAMED = 5  # files in a sentence
_NEEDS_KIND = "give auto, overlay or clone"


def require_kind(config: Mapping[str, Any]) -> str:
    """Return the kind of workspaces that a run wants: `isolate` of its config, or auto.

    Raises IsolationError if it is none.
    """
    wanted = str(config.get("isolate", "auto"))
    if wanted == IsolationKind.NONE:
        raise IsolationError(
            f'A node of this workflow works in its own copy of the project, and isolate is "none": {_NEEDS_KIND}'
        )
    if wanted not in KINDS:
        raise IsolationError(f'isolate is "{wanted}": {_NEEDS_KIND}')
    return wanted


def check_isolation(config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a run with isolated nodes before anything is paid. Raises IsolationError."""
    require_kind(config)
    if find_repository(folder) is None:
        raise no_workspaces(f"{folder} is in no git repository")


def no_workspaces(reason: str) -> IsolationError:
    """Return the error for a folder that cannot have workspaces."""
    return IsolationError(
        f"A node of this workflow works in its own copy of the project, and {reason}: "
        "run it in a git repository that has a commit"
    )


def announce_branch(branch: RunBranch, uncommitted: Sequence[str]) -> Iterator[str]:
    """Yield the messages about a new branch of a run."""
    source = branch.upstream or "a detached HEAD"
    yield (
        f"branch {branch.name} from {source} ({branch.start[:7]}) · "
        f"isolated nodes work in their own copies of the project ({branch.kind})"
    )
    for reason in branch.reasons:
        yield f"workspaces are copies ({branch.kind}), because {reason}"
    if uncommitted and branch.first == branch.start:
        left = len(uncommitted) - MAX_NAMED
        more = f" and {left} more" if left > 0 else ""
        yield (
            "your uncommitted files are not in these copies, which begin with your last commit: "
            f"{', '.join(uncommitted[:MAX_NAMED])}{more}"
        )


def describe_branch(branch: RunBranch, run: str) -> str:
    """Return what a completed run has left on its branch, and what to do with it."""
    if not branch.landed:
        return f"nothing was merged into {branch.name}"
    what = "1 result is" if len(branch.landed) == 1 else f"{len(branch.landed)} results are"
    short = run[:8]
    return f"{what} on {branch.name} (to look: atomic diff {short}, to merge: atomic accept {short})"
