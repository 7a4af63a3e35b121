"""Which code of a project may run: exactly the bytes that the user has approved.

`look` takes a snapshot: all that could run, with its bytes. Its hash is what a person approves, and whoever runs
something takes the bytes from the snapshot, so what runs is what was looked at.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from atomic.base.redaction import Redactor
from atomic.config import find_project
from atomic.loading.executables import Item, Kind, agent_files, find_executables, is_home
from atomic.loading.trust_store import MAX_TEXT, Approval, ApprovedItem, TrustStore
from atomic.workflows.errors import TrustError, UntrustedError


class Change(StrEnum):
    """What became of an item since the last approval."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Snapshot(msgspec.Struct, frozen=True):
    """A project at one moment: all that it could run, and whether that is approved."""

    project: str  # its real path
    hash: str
    items: tuple[Item, ...] = ()
    files: Mapping[str, bytes] = {}  # of workflows and tools, from the project's folder
    refused: Mapping[str, str] = {}  # files of workflows and tools that are not read, and why
    approved: bool = False  # somebody has said yes to exactly this
    approval: Approval | None = None  # the last one, whatever it was for
    problem: str = ""  # why no approval could be read

    @property
    def trusted(self) -> bool:
        """Whether all that is there may run: it is approved, or there is nothing."""
        return self.approved or not self.items

    def allows(self, folder: Path) -> bool:
        """Whether agents that work in that folder may run what the project brings for them.

        Below the project's own folder they would find more, which nobody was asked about.
        """
        real = Path(os.path.realpath(folder))
        between = [place for place in (real, *real.parents) if place.is_relative_to(self.project)]
        inner = [place for place in between if str(place) != self.project]
        return self.approved and bool(between) and not any(agent_files(place) for place in inner)


class ItemChange(msgspec.Struct, frozen=True):
    """An item beside what was approved; `before` is None for one that is new, `now` for one that has gone."""

    change: Change
    kind: str
    path: str
    sha256: str
    now: Item | None = None
    before: ApprovedItem | None = None


_RUN_BY_ATOMIC = frozenset({Kind.WORKFLOW, Kind.TOOL, Kind.SETUP, Kind.GATE})


class RunTrust(msgspec.Struct, frozen=True):
    """What a run was started with, and what it changed itself; kept with the run, it lets the run go on."""

    start: Mapping[str, str]  # key of an item -> its sha256
    own: Mapping[str, str | None] = {}  # what the run left behind; None: it took the item away

    @classmethod
    def of(cls, snapshot: Snapshot) -> RunTrust:
        """At the start of a run in a trusted project."""
        return cls(_digests(snapshot))

    def note(self, snapshot: Snapshot) -> RunTrust:
        """The same with what is different now as the run's own work; for moments at which only the run could do it.

        What Atomic itself would run is never its own work: an agent could write it, and so get out of its place.
        """
        now = _digests(snapshot)
        differ = [key for key in _differing(self.start, now) if key.partition(" ")[0] not in _RUN_BY_ATOMIC]
        return RunTrust(self.start, {key: now.get(key) for key in differ})

    def strange(self, snapshot: Snapshot) -> tuple[str, ...]:
        """The items that are neither as they were at the start nor as the run left them; none: it may go on.

        Where the user has taken the project's approval back, all are.
        """
        now = _digests(snapshot)
        if snapshot.approval is not None and snapshot.approval.is_revoked:
            return tuple(now)
        expected = {**self.start, **self.own}
        return tuple(_differing({key: digest for key, digest in expected.items() if digest is not None}, now))


def _digests(snapshot: Snapshot) -> dict[str, str]:
    return {item.key: item.sha256 for item in snapshot.items}


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]


def look(project: Path | None = None, *, home: Path | None = None) -> Snapshot:
    """A project as it is now, the current one unless it is given; `home` is another folder than `$ATOMIC_HOME`."""
    folder = project or find_project()
    if folder is None:
        return Snapshot("", hash_of(()))
    real = os.path.realpath(folder)
    found = find_executables(Path(real))
    approval, problem = _approval(TrustStore(home), real)
    digest = hash_of(found.items)
    approved = approval is not None and approval.hash == digest and not any(item.blocks for item in found.items)
    return Snapshot(real, digest, found.items, found.files, found.refused, approved, approval, problem)


def _approval(store: TrustStore, project: str) -> tuple[Approval | None, str]:
    try:
        return store.find(project), ""
    except TrustError as error:
        return None, str(error)


def hash_of(items: tuple[Item, ...]) -> str:
    """What stands for exactly these items and their bytes."""
    facts = sorted((item.kind.value, item.path, item.sha256) for item in items)
    return sha256(msgspec.json.encode(facts)).hexdigest()


def approve(snapshot: Snapshot, *, home: Path | None = None) -> None:
    """Let exactly this run from now on, in exactly this folder. Raises TrustError."""
    _check_approvable(snapshot)
    items = tuple(ApprovedItem(item.kind, item.path, item.sha256) for item in snapshot.items)
    texts = {item.sha256: shown_text(item) for item in snapshot.items if not item.reason}
    TrustStore(home).put(snapshot.project, Approval(snapshot.hash, _now(), items), texts)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def revoke(project: Path | None = None, *, home: Path | None = None) -> bool:
    """Forget what was approved for a project; whether there was something. Raises TrustError."""
    folder = project or find_project()
    return folder is not None and TrustStore(home).remove(os.path.realpath(folder), _now())


def accept(snapshot: Snapshot, given: str | None) -> Snapshot:
    """The snapshot as it counts for one command: with `--trust HASH` it is approved if that is its hash.

    Raises UntrustedError, TrustError.
    """
    if given is None:
        return snapshot
    if given != snapshot.hash:
        raise UntrustedError(snapshot.project, snapshot.hash, names_of(snapshot), given=given)
    _check_approvable(snapshot)
    return msgspec.structs.replace(snapshot, approved=True)


def require(snapshot: Snapshot) -> None:
    """Raises UntrustedError unless all of it may run."""
    if not snapshot.trusted:
        raise UntrustedError(snapshot.project, snapshot.hash, names_of(snapshot))


def names_of(snapshot: Snapshot) -> list[str]:
    """The items, for people; a gate by its command. First those that are not as they were approved."""
    before = {_key(item): item.sha256 for item in snapshot.approval.items} if snapshot.approval else None
    named: dict[bool, list[str]] = {False: [], True: []}
    for item in snapshot.items:
        same = before is None or before.get(item.key) == item.sha256
        mark = "" if same else " (changed)" if item.key in (before or {}) else " (new)"
        named[same].append(visible(_name_of(item)) + mark)
    return [*named[False], *named[True]]


def _name_of(item: Item) -> str:
    return f'check "{item.text}" ({item.path})' if item.kind is Kind.GATE else f"{item.kind} {item.path}"


def visible(text: str) -> str:
    """A text in which nothing hides: what is not to be seen stands there by its number."""
    return "".join(letter if letter.isprintable() or letter == "\t" else f"<U+{ord(letter):04X}>" for letter in text)


def _check_approvable(snapshot: Snapshot) -> None:
    folder = Path(snapshot.project or "/")
    if folder == Path(folder.anchor) or is_home(folder):
        raise TrustError(f"{folder}: this folder holds many projects; go into one of them to trust it")
    for item in snapshot.items:
        if item.blocks:
            raise TrustError(f"{item.path}: this cannot be trusted, because it cannot be shown: {item.reason}")


def changes(snapshot: Snapshot) -> list[ItemChange]:
    """Each item beside the last approval, those that have gone included."""
    before = {_key(item): item for item in snapshot.approval.items} if snapshot.approval else {}
    found = [_change(item, before.pop(item.key, None)) for item in snapshot.items]
    gone = [ItemChange(Change.REMOVED, item.kind, item.path, item.sha256, before=item) for item in before.values()]
    return [*found, *gone]


def _key(item: ApprovedItem) -> str:
    return f"{item.kind} {item.path}" + (f" {item.sha256}" if item.kind == Kind.GATE else "")


def _change(item: Item, before: ApprovedItem | None) -> ItemChange:
    same = before is not None and before.sha256 == item.sha256
    change = Change.UNCHANGED if same else Change.ADDED if before is None else Change.CHANGED
    return ItemChange(change, item.kind, item.path, item.sha256, item, before)


def diff_of(change: ItemChange, *, home: Path | None = None) -> list[str]:
    """The lines that are new and those that have gone; of something new all of it. Secrets are not shown."""
    if change.change is Change.UNCHANGED:
        return []
    old = None if change.before is None else TrustStore(home).text(change.before.sha256)
    new = "" if change.now is None else shown_text(change.now)
    names = "/dev/null" if change.before is None else change.path, "/dev/null" if change.now is None else change.path
    lines = _compared((old or "").splitlines(), new.splitlines(), names)
    if change.now is not None and change.now.reason:
        return [f"! not read: {change.now.reason}"]
    if not lines and change.change is Change.CHANGED:
        return ["! it differs in something that is not shown: a secret, a line's end, or what is no text"]
    if change.before is not None and old is None:
        return ["! what was approved is not kept: all of it is shown", *lines]
    return lines


def command_of(change: ItemChange, *, home: Path | None = None) -> str | None:
    """Return the command line of a check, without secrets; None for everything else."""
    if change.kind != Kind.GATE:
        return None
    if change.now is not None:
        return shown_text(change.now)
    return TrustStore(home).text(change.sha256) or ""


_COMPARED = 1_000_000  # pairs of lines; to find what moved takes longer than that with a text made for it
_CONTEXT = 3


def _compared(old: list[str], new: list[str], names: tuple[str, str]) -> list[str]:
    """The difference line by line; where too much is different, all that has gone and all that is new."""
    same = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), None)
    if same is None and len(old) == len(new):
        return []
    start = max(0, (min(len(old), len(new)) if same is None else same) - _CONTEXT)
    ending = 0
    while ending < min(len(old), len(new)) - start and old[-1 - ending] == new[-1 - ending]:
        ending += 1
    cut = max(0, ending - _CONTEXT)
    before, after = old[start : len(old) - cut], new[start : len(new) - cut]
    if before and after and len(before) * len(after) > _COMPARED:
        hunk = f"@@ -{start + 1},{len(before)} +{start + 1},{len(after)} @@"
        return [
            f"--- {names[0]}",
            f"+++ {names[1]}",
            hunk,
            *(f"-{line}" for line in before),
            *(f"+{line}" for line in after),
        ]
    from difflib import unified_diff

    lines = unified_diff(before, after, *names, lineterm="", n=_CONTEXT)
    return [_moved(line, start) if line.startswith("@@ ") else line for line in lines]


def _moved(hunk: str, by: int) -> str:
    """The head of a hunk with the numbers that its lines have in the whole file."""
    return re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + by), hunk) if by else hunk


def shown_text(item: Item) -> str:
    """What a person is shown of an item; no secret in it."""
    if len(item.text) > MAX_TEXT:
        return f"(longer than {MAX_TEXT:,} characters: look at the file)\n"
    return Redactor.of_environment().text(item.text, code=True)
