"""Move the branch of a run, but never below a checkout of the user.

A checkout that is on a moved branch would show the difference as staged changes, which
the next commit takes back.
"""

from __future__ import annotations

from pathlib import Path

from atomic.base.errors import AtomicError
from atomic.git import GitError, Repository

_HEADS = "refs/heads/"


class BranchCheckedOutError(AtomicError):
    """A checkout of the user is on the branch, which may not move then."""

    def __init__(self, branch: str, folder: Path, upstream: str, is_linked: bool) -> None:
        self.folder = folder
        # A branch can be in one checkout only, so a linked one cannot take the user's.
        self.switch = f"git -C {folder} switch {'--detach' if is_linked or not upstream else upstream}"
        super().__init__(f"The checkout {folder} is on the branch {branch}, which would move under it")


async def find_checkout(repository: Repository, branch: str) -> Path | None:
    """Return the folder of a checkout that is on a branch, or None.

    Linked worktrees count. Raises GitError.
    """
    folder: Path | None = None
    # Git names the view of the repository in place of the main checkout, the first one.
    for number, record in enumerate((await repository.git("worktree", "list", "--porcelain")).split("\n\n")):
        lines = record.splitlines()
        if f"branch {_HEADS}{branch}" not in lines:
            continue
        folder = _main_checkout(repository) if number == 0 else Path(lines[0].removeprefix("worktree "))
        if folder is not None and folder.is_dir():
            return folder
    return None


def _main_checkout(repository: Repository) -> Path | None:
    """Return the main checkout of a repository; None if it is bare."""
    if repository.git_dir == repository.common_dir:
        return repository.root
    has_files = (repository.common_dir / "index").exists()
    return repository.common_dir.parent if has_files else None


async def refuse_checked_out(repository: Repository, branch: str, *, upstream: str = "") -> None:
    """Raise BranchCheckedOutError if a checkout of the user is on a branch.

    `upstream` is the branch that the user was on before. Raises GitError.
    """
    folder = await find_checkout(repository, branch)
    if folder is not None:
        raise BranchCheckedOutError(branch, folder, upstream, folder.resolve() != repository.root.resolve())


async def move_branch(repository: Repository, branch: str, new: str, old: str, *, upstream: str = "") -> bool:
    """Move a branch from one commit to another, if it is still at the first.

    Return whether it was. Raises BranchCheckedOutError, GitError.
    """
    await refuse_checked_out(repository, branch, upstream=upstream)
    try:
        await repository.git("update-ref", f"{_HEADS}{branch}", new, old)
    except GitError:
        current = (await repository.git("for-each-ref", "--format=%(objectname)", f"{_HEADS}{branch}")).strip()
        if current == new:
            return True  # a process was killed after it had moved the branch
        if current == old or (not current and not old.strip("0")):
            raise
        return False
    return True
