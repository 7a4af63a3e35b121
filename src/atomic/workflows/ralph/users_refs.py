"""The user's other branches, tags and stashes: no turn may delete or rewrite one.

They are noted when a turn or a check begins and compared after it. A ref that a turn makes is that turn's, and may go
again. A branch that has only grown has lost nothing: someone may work in another worktree of the repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

import msgspec

from atomic.git import GitError, Refs, Repository, read_refs
from atomic.sessions.facts import Facts
from atomic.workflows.ralph.users_files import CHECKS, from_fact, shown, to_fact

FACT = "refs"
_STASH = "stash "  # before the object of a stash, in place of the name of a ref
_BRANCH, _TAG = "refs/heads/", "refs/tags/"


class LostRef(msgspec.Struct, frozen=True):
    """A ref that is gone or points elsewhere."""

    name: str  # the full name, or `stash` and the object
    object: str  # what it was
    now: str  # what it is; empty: it is gone
    task: str  # whose turn it was, or CHECKS
    message: str = ""  # of a stash

    @property
    def title(self) -> str:
        """The ref in words."""
        if self.name.startswith(_STASH):
            return f"the stash {shown(self.message) or self.object[:12]}"
        kind = {_BRANCH: "branch", _TAG: "tag"}.get("/".join(self.name.split("/")[:2]) + "/", "ref")
        return f"the {kind} {shown(self.name.removeprefix(_BRANCH).removeprefix(_TAG))}"

    @property
    def said(self) -> str:
        """What happened to it."""
        when = " while a check ran" if self.task == CHECKS else ""
        return f"{self.title} was {'moved' if self.now else 'deleted'}{when}"

    @property
    def way_back(self) -> str:
        """The command that brings it back."""
        if self.name.startswith(_STASH):
            return f"git stash store -m {quote(self.message)} {self.object}"
        force = " -f" if self.now else ""
        if self.name.startswith(_BRANCH):
            return f"git branch{force} {quote(self.name.removeprefix(_BRANCH))} {self.object}"
        if self.name.startswith(_TAG):
            return f"git tag{force} {quote(self.name.removeprefix(_TAG))} {self.object}"
        return f"git update-ref {quote(self.name)} {self.object}"


class _Noted(msgspec.Struct, frozen=True):
    """What is known of refs; a fact of the run."""

    refs: Refs = Refs()  # when the last turn began, without those that turns have made
    made: list[str] = []  # names that turns have made
    lost: list[LostRef] = []


def lost_refs(facts: Mapping[str, Any]) -> list[LostRef]:
    """Return the refs of the user that are not as they were."""
    return _read(facts).lost


def _read(facts: Mapping[str, Any]) -> _Noted:
    return msgspec.convert(from_fact(facts.get(FACT, {})), _Noted)


class UsersRefs:
    """The refs of a repository, around turns and checks."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def begin(self, repository: Repository, branch: str | None) -> None:
        """Note what is there: what has changed since the last turn, the user has changed. `branch` may move."""
        noted, now = _read(self._facts), await _now(repository)
        if now is None:
            return
        flat = _flat(now)
        lost = [one for one in noted.lost if flat.get(one.name, ("", ""))[0] == one.now]
        gone = {one.name: one for one in lost}
        made = [name for name in noted.made if name in flat]
        refs = {name: object for name, object in now.refs if name not in made and name != branch}
        refs |= {name: one.object for name, one in gone.items() if not name.startswith(_STASH)}
        stashes = [(object, text) for object, text in now.stashes if _STASH + object not in made]
        stashes += ((one.object, one.message) for name, one in gone.items() if name.startswith(_STASH))
        self._note(_Noted(Refs(sorted(refs.items()), stashes), made, lost))

    async def end(self, repository: Repository, task: str, branch: str | None) -> list[LostRef]:
        """Note what is lost since the beginning; return what was not known to be lost. `branch` may move.

        What stays lost fails no second attempt: it may have been the user, and the report says it anyway.
        """
        noted, now = _read(self._facts), await _now(repository)
        if now is None or FACT not in self._facts:
            return []
        known = {one.name for one in noted.lost}
        lost = await _lost_since(noted, now, repository, task, branch)
        if any(one.name not in known for one in lost):  # git may have rewritten its files while they were read
            now = await _now(repository)
            if now is None:
                return []
            lost = await _lost_since(noted, now, repository, task, branch)
        before = _flat(noted.refs)
        made = sorted({*noted.made, *(name for name in _flat(now) if name not in before and name != branch)})
        self._note(_Noted(noted.refs, made, lost))
        return [one for one in lost if one.name not in known]

    def _note(self, noted: _Noted) -> None:
        if noted != _read(self._facts):
            self._facts.set(FACT, to_fact(noted))


async def _lost_since(noted: _Noted, now: Refs, repository: Repository, task: str, branch: str | None) -> list[LostRef]:
    """Return the refs that were noted and are gone or moved now."""
    known, after = {one.name: one for one in noted.lost}, _flat(now)
    lost: list[LostRef] = []
    for name, (object, message) in _flat(noted.refs).items():
        found = after.get(name, ("", ""))[0]
        is_free = name == branch  # the user may have switched since the beginning
        if found == object or is_free or (found and await _has_grown(repository, name, object, found)):
            continue
        whose = known[name].task if name in known else task
        lost.append(LostRef(name, object, found, whose, message))
    return lost


async def _now(repository: Repository) -> Refs | None:
    try:
        return await read_refs(repository)
    except GitError:  # a worker has damaged the repository; what is said of it comes from elsewhere
        return None


def _flat(refs: Refs) -> dict[str, tuple[str, str]]:
    stashes = {_STASH + object: (object, message) for object, message in refs.stashes}
    return {**{name: (object, "") for name, object in refs.refs}, **stashes}


async def _has_grown(repository: Repository, name: str, old: str, new: str) -> bool:
    return not name.startswith(_TAG) and await repository.is_ancestor(old, new)


def way_back(lost: list[LostRef]) -> str:
    """What a worker is told that has deleted or moved refs of the user."""
    told = "\n".join(f"- {one.said}" for one in lost)
    commands = "\n".join(one.way_back for one in lost)
    return (
        f"While your turn ran, branches, tags or stashes of the user changed:\n{told}\n\n"
        "If you did that, bring them back with these commands. If you did not, leave them alone: the user did it.\n\n"
        f"```sh\n{commands}\n```"
    )
