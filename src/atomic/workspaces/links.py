"""Find the links of a commit that lead out of the project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from atomic.git import Repository
from atomic.git.calls import split

_LINK = "120000"
_MAX_LINKS = 40  # the kernel follows no more


async def links_in(repository: Repository, commit: str) -> dict[str, str]:
    """Return the targets of all links of a commit, by path. Raises GitError."""
    entries = [entry.partition("\t") for entry in split(await repository.git("ls-tree", "-r", "-z", commit))]
    blobs = {path: facts.split()[2] for facts, _, path in entries if facts.startswith(_LINK)}
    orders = "".join(f"{blob}\n" for blob in blobs.values())
    listed = await repository.git("cat-file", "--batch=%(objectsize)", input=orders)
    return dict(zip(blobs, _contents(os.fsencode(listed)), strict=True))


def _contents(listed: bytes) -> Iterator[str]:
    """Return the contents in an output of `git cat-file`, of which each has its length
    before it.
    """
    at = 0
    while at < len(listed):
        size, _, _ = listed[at : at + 32].partition(b"\n")
        begin = at + len(size) + 1
        at = begin + int(size) + 1
        yield os.fsdecode(listed[begin : at - 1])


def way_out(path: str, links: Mapping[str, str]) -> str:
    """Return where a link leads that leaves the project; empty if it does not.

    Its target is followed step by step, as the kernel does: `..` is the folder above the
    one that a link leads to. A link that leads nowhere does not leave the project.
    """
    place: list[str] = path.split("/")[:-1]
    steps = links[path].split("/")
    if links[path].startswith("/"):
        return links[path]
    followed = 1
    while steps:
        step = steps.pop(0)
        if step in ("", os.curdir):
            continue
        if step == os.pardir:
            if not place:
                return "/".join((os.pardir, *steps))
            place.pop()
            continue
        target = links.get("/".join((*place, step)))
        if target is None:
            place.append(step)
            continue
        if target.startswith("/"):
            return "/".join((target, *steps))
        followed += 1
        if followed > _MAX_LINKS:
            return ""
        steps = [*target.split("/"), *steps]
    return ""
