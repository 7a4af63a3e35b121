"""The user's other branches, tags and stashes: no turn may delete or rewrite one, nor
take a submodule off a commit that only the user's checkout has.

They are recorded when a turn or a check begins and compared after it. A turn may delete
a ref that a turn made. A branch with new commits has lost nothing: someone may work in
another worktree of the repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

import msgspec

from atomic.git import GitError, Refs, Repository, find_repository, read_refs
from atomic.ralph.file_names import from_fact, shown, to_fact
from atomic.ralph.users_files import CHECKS
from atomic.sessions.facts import Facts

FACT = "refs"
_STASH = "stash "  # prefix of a stash's object, in place of the name of a ref
_SUBMODULE = "submodule "  # prefix of a submodule's folder
_BRANCH = "refs/heads/"
_TAG = "refs/tags/"


class LostRef(msgspec.Struct, frozen=True):
    """A ref that is gone or points elsewhere."""

    name: str  # the full name, `stash` and the object, or `submodule` and the folder
    object: str  # the object before
    now: str  # the object now; empty if the ref is gone
    task: str  # the task of the turn, or CHECKS
    message: str = ""  # of a stash; the branch of a submodule

    @property
    def title(self) -> str:
        """Return a readable name of the ref."""
        if self.name.startswith(_STASH):
            return f"the stash {shown(self.message) or self.object[:12]}"
        if self.name.startswith(_SUBMODULE):
            return f"the {shown(self.name)}"
        kind = {_BRANCH: "branch", _TAG: "tag"}.get("/".join(self.name.split("/")[:2]) + "/", "ref")
        return f"the {kind} {shown(self.name.removeprefix(_BRANCH).removeprefix(_TAG))}"

    @property
    def said(self) -> str:
        """Return a sentence about the loss."""
        when = " while a check ran" if self.task == CHECKS else ""
        if self.name.startswith(_SUBMODULE):
            return f"{self.title} was moved off commit {self.object[:12]}{when}"
        return f"{self.title} was {'moved' if self.now else 'deleted'}{when}"

    @property
    def restore_command(self) -> str:
        """Return the command that restores it."""
        if self.name.startswith(_STASH):
            return f"git stash store -m {quote(self.message)} {self.object}"
        if self.name.startswith(_SUBMODULE):
            branch = f"-B {quote(self.message)} " if self.message else ""
            return f"git -C {quote(self.name.removeprefix(_SUBMODULE))} checkout {branch}{self.object}"
        force = " -f" if self.now else ""
        if self.name.startswith(_BRANCH):
            return f"git branch{force} {quote(self.name.removeprefix(_BRANCH))} {self.object}"
        if self.name.startswith(_TAG):
            return f"git tag{force} {quote(self.name.removeprefix(_TAG))} {self.object}"
        return f"git update-ref {quote(self.name)} {self.object}"


class _Record(msgspec.Struct, frozen=True):
    """The refs of the user, and the lost ones; a fact of the run."""

    refs: Refs = Refs()  # at the start of the last turn, without refs that turns made
    made: list[str] = []  # names of refs that turns made
    lost: list[LostRef] = []


def lost_refs(facts: Mapping[str, Any]) -> list[LostRef]:
    """Return the refs of the user that are gone or moved."""
    return _read(facts).lost


def _read(facts: Mapping[str, Any]) -> _Record:
    return msgspec.convert(from_fact(facts.get(FACT, {})), _Record)


class UsersRefs:
    """The refs of a repository, around turns and checks."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    async def begin(self, repository: Repository, branch: str | None) -> None:
        """Record the refs: changes since the last turn come from the user.

        `branch` may move.
        """
        record = _read(self._facts)
        now = await _now(repository)
        if now is None:
            return
        flat = _flat(now)
        lost = [one for one in record.lost if flat.get(one.name, ("", ""))[0] == one.now]
        gone = {one.name: one for one in lost}
        made = [name for name in record.made if name in flat]
        refs = {name: object for name, object in now.refs if name not in made and name != branch}
        refs |= {name: one.object for name, one in gone.items() if not name.startswith((_STASH, _SUBMODULE))}
        stashes = [(object, text) for object, text in now.stashes if _STASH + object not in made]
        stashes += ((one.object, one.message) for name, one in gone.items() if name.startswith(_STASH))
        # The commit of another submodule is in the history of the repository.
        inner = [one for one in now.submodules if one[1] != one[3] and _SUBMODULE + one[0] not in gone]
        for name, one in gone.items():
            if name.startswith(_SUBMODULE):
                inner.append((name.removeprefix(_SUBMODULE), one.object, one.message, ""))
        self._note(_Record(Refs(sorted(refs.items()), stashes, inner), made, lost))

    async def end(self, repository: Repository, task: str, branch: str | None) -> list[LostRef]:
        """Record the refs that are lost since the beginning, and return the new ones.

        `branch` may move.

        A lost ref fails only one attempt: the user may have deleted it, and the report
        mentions it anyway.
        """
        record = _read(self._facts)
        now = await _now(repository)
        if now is None or FACT not in self._facts:
            return []
        known = {one.name for one in record.lost}
        lost = await _lost_since(record, now, repository, task, branch)
        if any(one.name not in known for one in lost):  # git may have rewritten its files while they were read
            now = await _now(repository)
            if now is None:
                return []
            lost = await _lost_since(record, now, repository, task, branch)
        before = _flat(record.refs)
        new = (name for name in _flat(now) if name not in before and not name.startswith(_SUBMODULE))
        made = sorted({*record.made, *new} - {branch})
        self._note(_Record(record.refs, made, lost))
        return [one for one in lost if one.name not in known]

    def _note(self, record: _Record) -> None:
        if record != _read(self._facts):
            self._facts.set(FACT, to_fact(record))


async def _lost_since(
    record: _Record, now: Refs, repository: Repository, task: str, branch: str | None
) -> list[LostRef]:
    """Return the recorded refs that are gone or moved now."""
    known = {one.name: one for one in record.lost}
    after = _flat(now)
    lost: list[LostRef] = []
    for name, (object, message) in _flat(record.refs).items():
        found = after.get(name, ("", ""))[0]
        if found == object or name == branch or (found and await _has_grown(repository, name, object, found)):
            continue
        whose = known[name].task if name in known else task
        lost.append(LostRef(name, object, found, whose, message))
    return lost


async def _now(repository: Repository) -> Refs | None:
    try:
        return await read_refs(repository)
    except GitError:  # a worker has damaged the repository; another check reports it
        return None


def _flat(refs: Refs) -> dict[str, tuple[str, str]]:
    stashes = {_STASH + object: (object, message) for object, message in refs.stashes}
    inner = {_SUBMODULE + folder: (commit, branch) for folder, commit, branch, _ in refs.submodules}
    return {**{name: (object, "") for name, object in refs.refs}, **stashes, **inner}


async def _has_grown(repository: Repository, name: str, old: str, new: str) -> bool:
    if name.startswith(_SUBMODULE):
        repository = find_repository(repository.root / name.removeprefix(_SUBMODULE)) or repository
    return not name.startswith(_TAG) and await repository.is_ancestor(old, new)


def prompt_to_restore_refs(lost: list[LostRef]) -> str:
    """Return the prompt for a worker that has deleted or moved refs of the user."""
    changes = "\n".join(f"- {one.said}" for one in lost)
    commands = "\n".join(one.restore_command for one in lost)
    return (
        f"While your turn ran, branches, tags, stashes or submodules of the user changed:\n{changes}\n\n"
        "If you did that, bring them back with these commands. If you did not, the user did it: leave them.\n\n"
        f"```sh\n{commands}\n```"
    )
