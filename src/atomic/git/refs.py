"""The user's branches, tags, notes and stashes, read from git's files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic.git.repository import HASH, Mark, Repository, mark, text_of

WATCHED = ("refs/heads/", "refs/tags/", "refs/notes/")  # what a fetch brings again is not watched
_LOCK = ".lock"  # ends the name of a file that git is about to put in place, and of no ref
_packed_refs: dict[Path, tuple[Mark, dict[str, str]]] = {}  # by common folder: a repository may have thousands


class Refs(msgspec.Struct, frozen=True):
    """Names and objects of refs, and the stashes: objects and messages, newest first."""

    refs: list[tuple[str, str]] = []  # pairs: redaction would replace a value under a name such as `token`
    stashes: list[tuple[str, str]] = []


async def read_refs(repository: Repository) -> Refs:
    """Return the refs as they are now. Raises GitError, only where git must be asked."""
    folder = repository.common_dir
    stashes = _stashes(text_of(folder / "logs" / "refs" / "stash"))
    if (folder / "reftable").is_dir():
        listed = (await repository.git("for-each-ref", "--format=%(refname) %(objectname)", *WATCHED)).splitlines()
        refs = dict(line.rsplit(" ", 1) for line in listed)
        log = (
            await repository.git("reflog", "show", "--format=%H\t%gs", "refs/stash")
            if await _has_stash(repository)
            else ""
        )
        stashes = [(name, message) for name, _, message in (line.partition("\t") for line in log.splitlines())]
    else:
        loose = dict(_loose(folder))  # first: `git pack-refs` writes the packed ones before it deletes these
        refs = {**_packed(folder), **loose}
    return Refs(sorted(refs.items()), stashes)


async def _has_stash(repository: Repository) -> bool:
    return bool(await repository.git("for-each-ref", "refs/stash"))


def _loose(folder: Path) -> Iterator[tuple[str, str]]:
    for start in WATCHED:
        for place, _, names in os.walk(folder / start):
            for name in names:
                if name.endswith(_LOCK):
                    continue
                path = Path(place, name)
                if HASH.fullmatch(found := text_of(path)):
                    yield path.relative_to(folder).as_posix(), found


def _packed(folder: Path) -> dict[str, str]:
    now = mark(folder / "packed-refs")
    known = _packed_refs.get(folder)
    if known is None or known[0] != now:
        lines = (line.split(" ", 1) for line in text_of(folder / "packed-refs").splitlines())
        found = {words[1]: words[0] for words in lines if len(words) == 2 and words[1].startswith(WATCHED)}
        known = _packed_refs[folder] = now, found
    return known[1]


def _stashes(log: str) -> list[tuple[str, str]]:
    entries = (line.partition("\t") for line in reversed(log.splitlines()))
    return [(facts.split(" ")[1], message) for facts, _, message in entries if facts.count(" ") > 1]
