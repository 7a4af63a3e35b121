"""Find out what changed between two commits of the user's repository."""

from __future__ import annotations

import posixpath

from atomic.git import GitError, Repository

_LINK = "120000"
_NOTHING = "000000"


async def changed_files(repository: Repository, old: str, new: str) -> dict[str, tuple[str, str]]:
    """Return mode and hash of each changed file, before and after. Raises GitError."""
    words = ("diff", "--raw", "--no-abbrev", "--no-renames", "-z", old, new)
    fields = iter((await repository.git(*words)).split("\0")[:-1])
    found: dict[str, tuple[str, str]] = {}
    for facts in fields:
        old_mode, new_mode, old_hash, new_hash, _ = facts.removeprefix(":").split()
        found[next(fields)] = f"{old_mode} {old_hash}", f"{new_mode} {new_hash}"
    return found


async def links_outside(repository: Repository, old: str, new: str) -> list[str]:
    """Return the new or changed links that lead out of the project.

    A program that follows one uses files that are in no commit. Raises GitError.
    """
    found: list[str] = []
    for path, (_, after) in (await changed_files(repository, old, new)).items():
        mode, blob = after.split()
        if mode == _LINK and _leads_out(path, await repository.git("cat-file", "blob", blob)):
            found.append(path)
    return found


def _leads_out(path: str, target: str) -> bool:
    way = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return way.startswith("/") or way.split("/")[0] == ".."


async def ignored_files(repository: Repository, old: str, new: str) -> list[str]:
    """Return the new files that the user's ignore rules name.

    They were committed by force, or under other rules. Raises GitError.
    """
    changes = await changed_files(repository, old, new)
    added = [path for path, (before, _) in changes.items() if before.startswith(_NOTHING)]
    if not added:
        return []
    # This command takes its paths literally, and refuses the option that says so.
    words = ("--no-literal-pathspecs", "check-ignore", "--no-index", "-z", "--stdin")
    try:
        listed = await repository.git(*words, input="\0".join(added) + "\0")
    except GitError as error:
        if error.reason in ("", "exit code 1"):  # none is ignored
            return []
        raise
    return listed.split("\0")[:-1]
