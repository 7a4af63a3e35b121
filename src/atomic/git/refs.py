"""Read the user's branches, tags, notes, stashes and submodules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic.git.calls import GitError
from atomic.git.repository import HASH, Mark, Repository, mark, submodules_of, text_of

# Remote branches are left out: the next fetch restores them.
WATCHED = ("refs/heads/", "refs/tags/", "refs/notes/")
# By common folder: a repository may have thousands of packed refs.
_packed_refs: dict[Path, tuple[Mark, dict[str, str]]] = {}


class Refs(msgspec.Struct, frozen=True):
    """Refs (name, object), stashes (object, message), newest first, and submodules:
    folder, commit, branch (if any) and the commit in the index.

    Pairs and not a mapping, because redaction replaces the value of a key like `token`.
    """

    refs: list[tuple[str, str]] = []
    stashes: list[tuple[str, str]] = []
    submodules: list[tuple[str, str, str, str]] = []


async def read_refs(repository: Repository) -> Refs:
    """Return the current refs. Raises GitError if git has to be called and fails."""
    folder = repository.common_dir
    if (folder / "reftable").is_dir():
        return await _read_reftable(repository)
    stashes: list[tuple[str, str]] = []
    for line in reversed(text_of(folder / "logs" / "refs" / "stash").splitlines()):
        facts, _, message = line.partition("\t")
        if facts.count(" ") > 1:
            stashes.append((facts.split(" ")[1], message))
    # Loose refs first: `git pack-refs` writes the packed file before it deletes them.
    loose = dict(_loose_refs(folder))
    refs = {**_read_packed_refs(folder), **loose}
    return Refs(sorted(refs.items()), stashes, await _read_submodules(repository))


def may_have_ref(repository: Repository, name: str) -> bool:
    """Return whether a ref exists, without a call of git; True if only git can tell."""
    folder = repository.common_dir
    if (folder / "reftable").is_dir():
        return True
    return HASH.fullmatch(text_of(folder / name)) is not None or name in _read_packed_refs(folder)


async def _read_submodules(repository: Repository, prefix: str = "") -> list[tuple[str, str, str, str]]:
    found: list[tuple[str, str, str, str]] = []
    for folder, (indexed, inner) in (await submodules_of(repository)).items():
        try:
            head, branch = await inner.head()
            deeper = await _read_submodules(inner, f"{prefix}{folder}/")
        except GitError:  # a damaged submodule has nothing to compare
            continue
        if head is not None:
            found.append((f"{prefix}{folder}", head, (branch or "").removeprefix("refs/heads/"), indexed))
        found += deeper
    return found


async def _read_reftable(repository: Repository) -> Refs:
    listed = await repository.git("for-each-ref", "--format=%(refname) %(objectname)", *WATCHED)
    refs = dict(line.rsplit(" ", 1) for line in listed.splitlines())
    stashes: list[tuple[str, str]] = []
    if await repository.git("for-each-ref", "refs/stash"):
        log = await repository.git("reflog", "show", "--format=%H\t%gs", "refs/stash")
        for line in log.splitlines():
            name, _, message = line.partition("\t")
            stashes.append((name, message))
    return Refs(sorted(refs.items()), stashes, await _read_submodules(repository))


def _loose_refs(folder: Path) -> Iterator[tuple[str, str]]:
    for start in WATCHED:
        for parent, _, names in os.walk(folder / start):
            for name in names:
                # Git is about to rename this file; a ref cannot have such a name.
                if name.endswith(".lock"):
                    continue
                path = Path(parent, name)
                found = text_of(path)
                if HASH.fullmatch(found):
                    yield path.relative_to(folder).as_posix(), found


def _read_packed_refs(folder: Path) -> dict[str, str]:
    now = mark(folder / "packed-refs")
    known = _packed_refs.get(folder)
    if known is None or known[0] != now:
        lines = (line.split(" ", 1) for line in text_of(folder / "packed-refs").splitlines())
        found = {words[1]: words[0] for words in lines if len(words) == 2 and words[1].startswith(WATCHED)}
        known = now, found
        _packed_refs[folder] = known
    return known[1]
