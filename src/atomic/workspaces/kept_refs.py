"""Keep commits in the user's repository while its garbage is collected.

`git gc --prune=now` deletes what no ref names when it begins. A fetch writes objects
first and the ref last, so a collection that runs at that time may take them away.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from atomic.git import GitError, Repository

ATTEMPTS = 25  # each may meet another collection
_GC_SECONDS = 120.0
_PAUSE = 0.05

# What git prints if an object is missing or damaged. It also prints it if it could not
# open a file for the reasons below, which say nothing about the object.
_GONE = re.compile(
    r"^(fatal|error): (missing \w+ object|bad (\w+ )?object|unable to read|Could not read|"
    r"Failed to traverse parents|loose object .+ is corrupt)",
    re.MULTILINE | re.IGNORECASE,
)
_FAULTS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EIO, errno.EACCES, errno.EPERM)


async def fetch_commit(repository: Repository, bundle: Path, source: str, ref: str, base: str) -> None:
    """Bring the commit of a bundle into the user's repository, and verify that all of it
    is there after the last collection that could have missed it.

    `base` is a commit that the repository has. Raises GitError.
    """
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle), f"+{source}:{ref}")
    # Git would collect garbage in the user's repository after a fetch.
    settings = ("-c", "fetch.fsckObjects=true", "-c", "maintenance.auto=false", "-c", "gc.auto=0")
    problem: GitError | None = None
    for _ in range(ATTEMPTS):
        try:
            await repository.git(*settings, *words, env={"GIT_ALLOW_PROTOCOL": "file"})
        except GitError as error:
            problem = error
        else:
            await _wait_for_collection(repository.common_dir)
            commit = (await repository.git("for-each-ref", "--format=%(objectname)", ref)).strip()
            if commit and await is_complete(repository, [commit], base):
                return
            problem = GitError(words, f"git has removed objects of {ref} while they were written")
        # Git fetches nothing while one of its refs has no commit.
        await drop_broken_refs(repository, "/".join(ref.split("/")[:3]) + "/", base)
    assert problem is not None
    raise problem


async def is_complete(repository: Repository, commits: Sequence[str], base: str) -> bool:
    """Return whether all objects of commits after `base` are there.

    Raises GitError if git could not tell, as after a timeout.
    """
    words = ("rev-list", "--objects", "--quiet", "--stdin")
    try:
        await repository.git(*words, input="".join(f"{commit}\n" for commit in (*commits, f"^{base}")))
    except GitError as error:
        if not _GONE.search(error.reason) or any(os.strerror(fault) in error.reason for fault in _FAULTS):
            raise
        return False
    return True


async def drop_broken_refs(repository: Repository, prefix: str, base: str) -> list[str]:
    """Delete the refs below a prefix whose commits are not complete, and return them.

    Nothing is deleted if `base` is not there either, or if git could not tell. Raises
    GitError.
    """
    listed = await repository.git("for-each-ref", "--format=%(refname) %(objectname)", prefix)
    refs = dict(line.split(" ") for line in listed.splitlines())
    commits = [*dict.fromkeys(refs.values())]
    if not commits or await is_complete(repository, commits, base) or not await is_complete(repository, [base], base):
        return []
    broken = {commit for commit in commits if not await is_complete(repository, [commit], base)}
    dropped = [ref for ref, commit in refs.items() if commit in broken]
    for ref in dropped:
        await repository.git("update-ref", "--no-deref", "-d", ref)
    return dropped


async def _wait_for_collection(common_dir: Path) -> None:
    """Wait until the collection that runs now, if there is one, has ended."""
    known = await asyncio.to_thread(_running_collection, common_dir)
    end = time.monotonic() + _GC_SECONDS
    current = known
    while current and current == known and time.monotonic() < end:
        await asyncio.sleep(_PAUSE)
        current = await asyncio.to_thread(_running_collection, common_dir)


def _running_collection(common_dir: Path) -> str:
    """Return what git has noted about a running collection: its process and host."""
    try:
        noted = (common_dir / "gc.pid").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    pid = noted.partition(" ")[0]
    if not pid.isdigit():
        return noted
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return ""  # it was killed
    except PermissionError:
        return noted
    return noted
