"""Decide which code of a project may run: exactly the bytes that the user has approved.

`look` takes a snapshot of everything that could run, with its bytes. The user approves
the hash of a snapshot. Code runs from the bytes of the snapshot and not from the disk,
so a change after the approval cannot run.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import msgspec

from atomic.base.redaction import MARK, Redactor
from atomic.config import find_project
from atomic.loading.trust_store import MAX_TEXT, Approval, ApprovedItem, TrustStore
from atomic.loading.trusted_files import Item, Kind, agent_files, find_executables, is_home, item_key
from atomic.workflows.errors import TrustError, UntrustedError


class ChangeKind(StrEnum):
    """What happened to an item since the last approval."""

    ADDED = "added"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that a project could run at one moment, and whether it is approved."""

    project: str  # its real path
    hash: str
    items: tuple[Item, ...] = ()
    files: Mapping[str, bytes] = {}  # workflows, tools and the set-up of workspaces, by path from the project's folder
    refused: Mapping[str, str] = {}  # files of these that were not read, and why
    approved: bool = False  # the user approved exactly this
    approval: Approval | None = None  # the last one, also if it was for other content
    problem: str = ""  # why the approvals could not be read

    @property
    def trusted(self) -> bool:
        """Return whether everything may run: it is approved, or there is nothing."""
        return self.approved or not self.items

    def allows(self, folder: Path) -> bool:
        """Return whether agents that work in a folder may run the project's hooks and
        servers.

        Folders below the project's own may not contain any: the user was not asked
        about those.
        """
        real = Path(os.path.realpath(folder))
        between = [path for path in (real, *real.parents) if path.is_relative_to(self.project)]
        inner = [path for path in between if str(path) != self.project]
        return self.approved and bool(between) and not any(agent_files(path) for path in inner)


class ItemChange(msgspec.Struct, frozen=True):
    """An item and its last approval.

    A new one has no `before`, a removed one no `now`.
    """

    change: ChangeKind
    kind: str
    path: str
    sha256: str
    now: Item | None = None
    before: ApprovedItem | None = None


_RUN_BY_ATOMIC = frozenset({Kind.WORKFLOW, Kind.TOOL, Kind.SETUP, Kind.GATE})


class RunTrust(msgspec.Struct, frozen=True):
    """The code that a run started with, and the run's changes to it.

    It is stored with the run. The run may continue while the project has nothing else.
    """

    start: Mapping[str, str]  # key of an item -> its sha256
    own: Mapping[str, str | None] = {}  # changes of the run; None: it removed the item

    @classmethod
    def of(cls, snapshot: Snapshot) -> RunTrust:
        """Return the trust of a run that starts in a trusted project."""
        return cls(_digests(snapshot))

    def note(self, snapshot: Snapshot) -> RunTrust:
        """Return a copy that counts the current differences as the run's own changes.

        Call it only when nothing but the run can have changed the project. Items that
        Atomic runs itself never count as own changes: an agent could write them to
        leave its sandbox.
        """
        now = _digests(snapshot)
        differ = [key for key in _differing(self.start, now) if key.partition(" ")[0] not in _RUN_BY_ATOMIC]
        return RunTrust(self.start, {key: now.get(key) for key in differ})

    def strange(self, snapshot: Snapshot) -> tuple[str, ...]:
        """Return the items that are neither as at the start nor as the run left them.

        The run may continue if there are none. If the user revoked the approval of the
        project, all items are strange.
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
    """Return a snapshot of a project, by default the current one.

    `home` replaces `$ATOMIC_HOME`.
    """
    folder = project or find_project()
    if folder is None:
        return Snapshot("", hash_of(()))
    real = os.path.realpath(folder)
    found = find_executables(Path(real))
    approval = None
    problem = ""
    try:
        approval = TrustStore(home).find(real)
    except TrustError as error:
        problem = str(error)
    digest = hash_of(found.items)
    approved = approval is not None and approval.hash == digest and not any(item.blocks for item in found.items)
    return Snapshot(real, digest, found.items, found.files, found.refused, approved, approval, problem)


def hash_of(items: tuple[Item, ...]) -> str:
    """Return a hash over the items and their bytes."""
    facts = sorted((item.kind.value, item.path, item.sha256) for item in items)
    return sha256(msgspec.json.encode(facts)).hexdigest()


def approve(snapshot: Snapshot, *, home: Path | None = None) -> None:
    """Allow exactly this content to run in exactly this folder. Raise TrustError."""
    _check_approvable(snapshot)
    items = tuple(ApprovedItem(item.kind, item.path, item.sha256) for item in snapshot.items)
    texts = {item.sha256: kept_text(item) for item in snapshot.items if not item.reason}
    TrustStore(home).put(snapshot.project, Approval(snapshot.hash, _now(), items), texts)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def revoke(project: Path | None = None, *, home: Path | None = None) -> bool:
    """Revoke the approval of a project and return whether it had one.

    Raise TrustError.
    """
    folder = project or find_project()
    return folder is not None and TrustStore(home).remove(os.path.realpath(folder), _now())


def accept(snapshot: Snapshot, given: str | None) -> Snapshot:
    """Return the snapshot for one command: approved if `--trust HASH` gave its hash.

    Raises:
        UntrustedError: the given hash is another one.
        TrustError: the project cannot be approved.
    """
    if given is None:
        return snapshot
    if given != snapshot.hash:
        raise refusal(snapshot, given)
    _check_approvable(snapshot)
    return msgspec.structs.replace(snapshot, approved=True)


def require(snapshot: Snapshot) -> None:
    """Raise UntrustedError unless everything may run."""
    if not snapshot.trusted:
        raise refusal(snapshot)


def refusal(snapshot: Snapshot, given: str | None = None) -> UntrustedError:
    """Return the error that names what would run, or only what changed since the last
    approval.
    """
    changed = has_changed(snapshot)
    shown = [one for one in changes(snapshot) if not changed or one.change is not ChangeKind.UNCHANGED]
    names = [f"{name_of(one)} ({note_of(one, snapshot)})" if changed else name_of(one) for one in shown]
    return UntrustedError(snapshot.project, snapshot.hash, names, given=given, changed=changed)


def has_changed(snapshot: Snapshot) -> bool:
    """Return whether the user approved an earlier state, and did not revoke it."""
    approval = snapshot.approval
    return not snapshot.trusted and approval is not None and not approval.is_revoked and bool(approval.items)


def name_of(change: ItemChange) -> str:
    """Return an item for a message; a check by its command."""
    if change.kind == Kind.GATE and change.now is not None:
        return visible(f'check "{change.now.text}" ({change.path})')
    return visible(f"{change.kind} {change.path}")


def note_of(change: ItemChange, snapshot: Snapshot) -> str:
    """Return what happened to an item, and when the user's own account saved it."""
    if change.change is ChangeKind.ADDED:
        return "new"
    if change.change is not ChangeKind.CHANGED:
        return str(change.change)
    saved = _saved_at(Path(snapshot.project, change.path))
    return f"changed: you, or a program of yours, saved it {saved}" if saved else "changed"


def _saved_at(path: Path) -> str:
    """Return when the user's account saved a file; empty if another account did."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    if status.st_uid != os.getuid():
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))


def visible(text: str) -> str:
    """Return a text with invisible characters replaced by their numbers."""
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def _visible(letter: str) -> str:
    is_seen = (
        letter.isprintable() and letter not in _BLANKS and not unicodedata.name(letter, "").startswith("VARIATION")
    )
    return letter if is_seen or letter == "\t" else f"<U+{ord(letter):04X}>"


# Letters, marks and symbols that have no shape: fillers of Hangul, joiners of vowels and
# graphemes, a blank of Braille. Python calls them printable, some also parts of a name.
_BLANKS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


def _check_approvable(snapshot: Snapshot) -> None:
    folder = Path(snapshot.project or "/")
    if folder == Path(folder.anchor) or is_home(folder):
        raise TrustError(f"{folder}: this folder holds many projects; change to one of them to trust it")
    for item in snapshot.items:
        if item.blocks:
            raise TrustError(f"{item.path}: this cannot be trusted, because it cannot be shown: {item.reason}")


def changes(snapshot: Snapshot) -> list[ItemChange]:
    """Compare each item with the last approval; removed items are included."""
    items = snapshot.approval.items if snapshot.approval else ()
    approved = {item_key(item.kind, item.path, item.sha256): item for item in items}
    found: list[ItemChange] = []
    for item in snapshot.items:
        before = approved.pop(item.key, None)
        change = ChangeKind.CHANGED
        if before is None:
            change = ChangeKind.ADDED
        elif before.sha256 == item.sha256:
            change = ChangeKind.UNCHANGED
        found.append(ItemChange(change, item.kind, item.path, item.sha256, item, before))
    for item in approved.values():
        found.append(ItemChange(ChangeKind.REMOVED, item.kind, item.path, item.sha256, before=item))
    return found


def diff_of(change: ItemChange, *, home: Path | None = None) -> list[str]:
    """Return the difference to the approved text; all lines of a new item.

    A line with a password counts as changed, because the approved one was not kept.
    """
    if change.change is ChangeKind.UNCHANGED:
        return []
    if change.now is not None and change.now.reason:
        return [f"! not read: {change.now.reason}"]
    old = None if change.before is None else TrustStore(home).text(change.before.sha256)
    new = "" if change.now is None else shown_text(change.now)
    old_name = "/dev/null" if change.before is None else change.path
    new_name = "/dev/null" if change.now is None else change.path
    lines = _compare((old or "").splitlines(), new.splitlines(), old_name, new_name)
    if not lines and change.change is ChangeKind.CHANGED:
        return ["! it differs in something that is not shown: a secret, a line ending, or bytes that are not text"]
    if change.before is not None and old is None:
        return ["! the approved text was not kept: all lines are shown", *lines]
    return lines


def command_of(change: ItemChange, *, home: Path | None = None) -> str | None:
    """Return the command line of a check; None for everything else."""
    if change.kind != Kind.GATE:
        return None
    if change.now is not None:
        return shown_text(change.now)
    return TrustStore(home).text(change.sha256) or ""


_MAX_PAIRS = 1_000_000  # of lines; difflib takes too long for more of them if a text is made for it
_CONTEXT = 3
_TOO_LONG = f"(longer than {MAX_TEXT:,} characters: look at the file)\n"


def _compare(old: list[str], new: list[str], old_name: str, new_name: str) -> list[str]:
    """Return a unified diff.

    If too much is different, all old lines and then all new ones.
    """
    if old == new:
        return []
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    start = max(0, start - _CONTEXT)
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    end = max(0, end - _CONTEXT)
    before = old[start : len(old) - end]
    after = new[start : len(new) - end]
    if before and after and len(before) * len(after) > _MAX_PAIRS:
        hunk = f"@@ -{start + 1},{len(before)} +{start + 1},{len(after)} @@"
        removed = [f"-{line}" for line in before]
        added = [f"+{line}" for line in after]
        return [f"--- {old_name}", f"+++ {new_name}", hunk, *removed, *added]
    from difflib import unified_diff

    lines = unified_diff(before, after, old_name, new_name, lineterm="", n=_CONTEXT)
    return [_move_hunk(line, start) if line.startswith("@@ ") else line for line in lines]


def _move_hunk(head: str, lines: int) -> str:
    """Return the head of a hunk with line numbers of the whole file."""
    return re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + lines), head) if lines else head


# A random value of a token: a stranger cannot write code that looks like this.
_RANDOM = re.compile(r"[\w+/=.-]*?(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{12,}[\w+/=.-]*", re.ASCII)


def kept_text(item: Item) -> str:
    """Return the text of an item for the disk, without secrets."""
    if len(item.text) > MAX_TEXT:
        return _TOO_LONG
    return Redactor.of_environment().text(item.text, code=True)


def shown_text(item: Item) -> str:
    """Return the text of an item for the user who decides about it.

    Only random values are hidden. A stranger chooses what looks like a password or a
    private key, and could hide a command there.
    """
    if len(item.text) > MAX_TEXT:
        return _TOO_LONG
    text = item.text
    parts: list[str] = []
    at = 0
    for start, end in Redactor.of_environment().spans(text, code=True):
        if _RANDOM.fullmatch(text, start, end):
            parts += (text[at:start], MARK)
            at = end
    return "".join((*parts, text[at:]))
