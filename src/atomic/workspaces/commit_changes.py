"""Find out what changed between two commits of the user's repository."""

from __future__ import annotations

from atomic.git import GitError, Repository
from atomic.workspaces.links import links_in, way_out

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
    """Return the links that lead out of the project, and did not before.

    A program that follows one uses files that are in no commit. An unchanged link may
    lead out because another one on its way was changed. Raises GitError.
    """
    changes = await changed_files(repository, old, new)
    changed = {path for path, modes in changes.items() if any(mode.startswith(_LINK) for mode in modes)}
    if not changed:
        return []
    before = await links_in(repository, old)
    after = await links_in(repository, new)
    found: list[str] = []
    for path in after:
        out = way_out(path, after)
        if out and (path in changed or path not in before or out != way_out(path, before)):
            found.append(path)
    return found


async def ignored_files(repository: Repository, old: str, new: str) -> list[str]:
    """Return the new files that the user's ignore rules name.

    They were committed by force, or under other rules. Raises GitError.
    """
    changes = await changed_files(repository, old, new)
    added = [path for path, (before, _) in changes.items() if before.startswith(_NOTHING)]
    if not added:
        return []
    # This command takes its paths literally, and refuses the option for that.
    words = ("--no-literal-pathspecs", "check-ignore", "--no-index", "-z", "--stdin")
    try:
        listed = await repository.git(*words, input="\0".join(added) + "\0")
    except GitError as error:
        if error.reason in ("", "exit code 1"):  # none is ignored
            return []
        raise
    return listed.split("\0")[:-1]
