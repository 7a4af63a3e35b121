"""The user's checkout between turns: its branch, its history, and the user's
uncommitted files.

A turn may only add commits to the current branch. It may not leave the branch, rewrite
it, or touch the user's uncommitted files. A change of the branch while no turn runs
comes from the user: the run pauses with a message.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

import msgspec

from atomic.git import FolderSnapshot, Repository, find_repository, uncommitted_in_submodules
from atomic.graph import Suspend
from atomic.ralph.hidden_files import HiddenFiles
from atomic.ralph.run_folder import RunFolder, read_turns
from atomic.ralph.state import Try
from atomic.ralph.turn_changes import changed_at, last_sign_of_life
from atomic.ralph.users_files import (
    CHECKS,
    EXISTING,
    FACT,
    MOST_FILES,
    Entry,
    Store,
    Trouble,
    UsersFiles,
    Version,
    content_of,
    describe,
    from_fact,
    list_again,
    list_existing,
    list_users_files,
    named,
    own_commits,
    read_users_files,
    shown,
    to_fact,
    troubles_of,
    way_back,
    with_versions,
)
from atomic.ralph.users_refs import UsersRefs
from atomic.ralph.users_refs import way_back as way_back_of_refs

POSITION = "position"
CHECKING = "checking"  # the fact that checks run while the user has uncommitted files
REASON = "branch_changed"
UNDONE = "undone"  # the fact of finished tasks whose changes the user has taken back
GONE = "Your turn has deleted the folder .git, and with it the history of the project. Never do that."


class Position(msgspec.Struct, frozen=True):
    """A commit and its branch, either of which may be missing."""

    head: str | None
    branch: str | None

    @property
    def name(self) -> str:
        """Return a readable name of the branch."""
        if self.branch is None:
            return f"no branch (HEAD is {str(self.head)[:12]})"
        return self.branch.removeprefix("refs/heads/")


class Seen(msgspec.Struct, frozen=True):
    """The checkout at a moment when no turn was under way."""

    position: Position
    tree: str  # of all files
    staged: dict[str, Entry | None] = {}  # staged changes of the user's files
    # The user's files in submodules, which the tree does not have, and their contents.
    inner: list[tuple[str, str]] = []


class Known(msgspec.Struct, frozen=True):
    """The branch of the work, and the checkout as it was seen last.

    A fact of the run.
    """

    good: Position  # the last position that was allowed
    seen: Seen | None = None  # None while a turn runs
    hooks: list[str] = []  # that may refuse a commit
    uncommitted: list[str] = []  # files in no commit, if there are such hooks
    told: Position | None = None  # the position that the last pause was about


def _read_known(fact: Any) -> Known:
    return msgspec.convert(from_fact(fact), Known)


def commit_hooks(facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the hooks that could have refused a commit, and the files that are in no
    commit.
    """
    found = facts.get(POSITION, {})
    return found.get("hooks", []), found.get("uncommitted", [])


def index_after_turn(facts: Mapping[str, Any]) -> tuple[str | None, dict[str, Entry | None]]:
    """Return the last commit, and the staged changes of the user's files after the last
    turn.
    """
    found = facts.get(POSITION)
    seen = None if found is None else _read_known(found).seen
    return (None, {}) if seen is None else (seen.position.head, seen.staged)


def undone_tasks(facts: Mapping[str, Any]) -> list[str]:
    """Return the finished tasks whose changes were gone when no turn had run."""
    return facts.get(UNDONE, [])


def is_turn_open(facts: Mapping[str, Any]) -> bool:
    """Return whether a turn or a check began and did not end, so its changes are not
    known.
    """
    found = facts.get(POSITION)
    if facts.get(CHECKING):
        return True
    return found is not None and _read_known(found).seen is None


_open_checks: Counter[Path] = Counter()  # by session folder, in this process


class Checkout:
    """The checkout around turns and checks.

    In a folder without git its methods do nothing.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._facts = run.facts
        self.failed: Try | None = None
        self._store = Store(run.session, run.redactor)
        self._refs = UsersRefs(run.facts)
        repository = find_repository(run.cwd)
        root = run.cwd if repository is None else repository.root
        commands = [check.command for check in run.checks.gates]
        self._hidden = HiddenFiles(run.facts, run.session, root, run.cwd.resolve(), commands)

    @property
    def files(self) -> UsersFiles:
        return read_users_files(self._facts)

    async def begin(self, now: FolderSnapshot) -> None:
        """Record the branch of the work and the user's uncommitted files, before any
        check runs.

        On a resume, troubles of files that an earlier start recorded are kept, and
        files that checks wrote are not listed.
        """
        repository = find_repository(self._run.cwd)
        if repository is None:
            await self._keep_existing(self._run.cwd, now, "git init && git add -A && git commit")
            return
        if (known := self._known()) is not None and self._were_checks_cut():
            await self._recover_checks(known, repository)
        before = self.files
        position = await _position(repository)
        is_bisect = repository.operation() == "bisect"
        if is_bisect and position.branch is None:
            self._run.say(
                "A git bisect is in progress: the commits of this run will be on no branch, and git bisect reset leaves"
                " them. End it first (git bisect reset)"
            )
        elif is_bisect:
            self._run.say(
                f"A git bisect is in progress and {position.name} is checked out: the commits of this run will be on "
                f"{position.name}. If they belong elsewhere, end the bisect first (git bisect reset)"
            )
        elif position.branch is None:
            self._run.say(
                "HEAD is detached: the commits of this run will be on no branch. git switch -c NAME gives them one"
            )
        self._note(Known(position, Seen(position, now.tree)))
        # Without a commit nothing separates the user's files from the project: all
        # belong to it.
        if position.head is None:
            await self._keep_existing(repository.root, now, "git add -A && git commit")
            return
        uncommitted = await self._run.snapshots.uncommitted_names(now)
        written = {*self._run.checks.leftovers} - before.files.keys()
        files = await list_users_files(repository, position.head, uncommitted, self._store, without=written)
        files = _with_old_troubles(files, before)
        if files.files or before.files or before.versions or before.committed:
            self._facts.set(FACT, to_fact(files))
            staged = await self._staged(repository, position)
            self._note(Known(position, Seen(position, now.tree, staged, self._inner(repository))))
        if files.files:
            self._run.say(_announced(files))
        if files.unreadable:
            self._run.say(f"Uncommitted work in {named(files.unreadable)} is not protected: git cannot read it")

    async def _keep_existing(self, root: Path, now: FolderSnapshot, commands: str) -> None:
        """Keep copies of the files that exist before the first turn of a run without a
        commit.
        """
        if self._facts.get(EXISTING) is not None:
            return
        files = await asyncio.to_thread(list_existing, root, await self._run.snapshots.names(now), self._store)
        self._facts.set(EXISTING, to_fact(files))
        if not files.files:
            return
        lost = [path for path, file in files.files.items() if file.not_kept]
        kept = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
        if files.unlisted:
            kept += f" Only the first {len(files.files):,} files are watched."
        self._run.say(
            "This folder has no commit: agents may change and delete every file in it, and git cannot bring one back. "
            f"To be safe, run {commands} first. After the run, atomic salvage {self._run.session.name} PATH puts a "
            f"file back.{kept}"
        )

    async def begin_checks(self, before: FolderSnapshot) -> None:
        """Attribute the changes since the last turn to the user, so that later changes
        belong to the checks.
        """
        known = self._known()
        repository = find_repository(self._run.cwd)
        if known is not None and repository is not None and not self._others(""):
            if self._were_checks_cut():
                await self._recover_checks(known, repository)
            elif known.seen is not None:
                await self._adopt(known.seen, repository, before)
            await self._refs.begin(repository, known.good.branch)
        _open_checks[self._run.session] += 1
        if self.files.files and not self._facts.get(CHECKING):
            self._facts.set(CHECKING, True)

    async def end_checks(self, before: FolderSnapshot) -> FolderSnapshot:
        """Report changes of the user's files by checks, and return a snapshot after
        them.
        """
        _open_checks[self._run.session] -= 1
        after = await self._run.snapshots.take() if self._run.cwd.is_dir() else before
        known = self._known()
        repository = find_repository(self._run.cwd)
        # If a worker's turn is running, the comparison at its end finds the troubles.
        if known is not None and known.seen is not None and repository is not None and not self._others(""):
            await self._report_checks(known, repository)
            if lost := await self._refs.end(repository, CHECKS, known.good.branch):
                self._run.say(f"{'; '.join(one.said for one in lost[:3])}. `{lost[0].way_back}` brings it back")
            if await _position(repository) == known.seen.position:
                await self._see("", after)
        if self._facts.get(CHECKING) and not _open_checks[self._run.session]:
            self._facts.set(CHECKING, False)
        return after

    async def _report_checks(self, known: Known, repository: Repository) -> None:
        if not self.files.files or known.good.head is None:
            return
        before = self.files.troubles
        found = await self._find_troubles(known.good.head, repository, CHECKS)
        if new := [describe(shown(path), trouble) for path, trouble in found.items() if path not in before]:
            more = f" and {len(new) - 3} more" if len(new) > 3 else ""
            self._run.say(
                f"your uncommitted work was touched: {'; '.join(new[:3])}{more}. "
                f"After the run, `atomic salvage {self._run.session.name}` puts it back"
            )

    def _were_checks_cut(self) -> bool:
        """Return whether Atomic was killed while checks ran."""
        return bool(self._facts.get(CHECKING)) and not _open_checks[self._run.session]

    async def _recover_checks(self, known: Known, repository: Repository) -> Known:
        """Separate changes of the user's files by killed checks from later changes by
        the user.
        """
        known = await self._adopt_after_kill(known, repository)
        await self._report_checks(known, repository)
        self._facts.set(CHECKING, False)
        return known

    @asynccontextmanager
    async def turn(self, task: str, *, is_repair: bool, hidden_as: str = "") -> AsyncGenerator[None]:
        """Watch a turn, and set `failed` to a forbidden change that it made.

        `is_repair`: the turn must undo a change of the turn before it. `hidden_as`: the
        name for `hidden_changes`, if it is not the task. Raises Suspend if the branch
        has changed.
        """
        repository = self._repository()
        if (known := self._known()) is not None and repository is not None and not self._others(task):
            if (seen := known.seen) is not None:
                now = await _position(repository)
                if not is_repair or now != seen.position:
                    known = await self._moved(known, seen.position, now, repository)
                if self._were_checks_cut():
                    known = await self._recover_checks(known, repository)
                else:
                    await self._adopt(seen, repository)
            else:
                known = await self._adopt_after_kill(known, repository)
                await self._refs.end(repository, task, known.good.branch)
            await self._refs.begin(repository, known.good.branch)
            self._note(msgspec.structs.replace(known, seen=None, told=None))
        if cut := await self._hidden.begin_turn():
            what = f"{cut} and the folders after it are not watched"
            self._run.say(f"This project is too large to watch every file that git ignores: {what}")
        try:
            yield
        finally:
            await self._hidden.end_turn(hidden_as or task)
            self.failed = await self._judge(task)
            await self._see(task)

    def hidden_changes(self, task: str) -> list[str]:
        """Return ignored configuration files and tools that turns of a task have
        changed.
        """
        return self._hidden.changed_by(task)

    def note_hidden_changes(self, task: str, paths: Collection[str]) -> None:
        """Record other files that decide about checks and that turns of a task have
        changed.
        """
        self._hidden.note(task, paths)

    def _others(self, task: str) -> bool:
        """Return whether another turn is running: then changes cannot be attributed."""
        return bool(read_turns(self._facts).open - {task, ""})

    async def require_repository(self) -> None:
        """Raise Suspend if the repository of the run is gone, or replaced by another."""
        repository = self._repository()
        known = self._known()
        if repository is None or known is None or known.good.head is None:
            return
        if not await repository.has_commit(known.good.head):
            self._suspend_without(f"commit {known.good.head[:12]} is not in it")

    async def stay(self) -> None:
        """Raise Suspend if the checkout is not on the branch of the run, or its history
        was rewritten.
        """
        repository = self._repository()
        known = self._known()
        if known is None or known.seen is None or repository is None or self._others(""):
            return
        moved = await self._moved(known, known.seen.position, await _position(repository), repository)
        self._note(msgspec.structs.replace(moved, told=None))

    async def note_undone(self, now: FolderSnapshot) -> None:
        """Record finished tasks whose changes are gone since the last turn."""
        known = self._known()
        if known is not None and known.seen is not None and not self._others(""):
            await self._note_undone(known.seen, now)

    async def _note_undone(self, seen: Seen, now: FolderSnapshot) -> None:
        changed = await self._changed_paths(FolderSnapshot(None, seen.tree), now)
        undone = undone_tasks(self._facts)
        for id, proof in self._run.evidence.items():
            spans = self._run.spans(id)
            files = {*proof.changed_files}
            if id in undone or proof.status != "passed" or not spans or files.isdisjoint(changed):
                continue
            if files.isdisjoint(await self._changed_paths(spans[0].before, now)):
                undone = [*undone, id]
                self._facts.set(UNDONE, undone)
                self._run.say(f"the changes of task {id} were undone while no agent worked: the task is done again")

    async def _changed_paths(self, before: FolderSnapshot, after: FolderSnapshot) -> set[str]:
        return {one.path for one in await self._run.snapshots.changes(before, after)}

    async def _see(self, task: str, snapshot: FolderSnapshot | None = None) -> None:
        """Record the checkout: changes until the next turn begins belong to the user."""
        known = self._known()
        repository = find_repository(self._run.cwd)
        if known is None or repository is None or self._others(task):
            return
        position = await _position(repository)
        if snapshot is None:
            snapshot = await self._run.snapshots.take()
        seen = Seen(position, snapshot.tree, await self._staged(repository, position), self._inner(repository))
        hooks = await repository.commit_hooks()
        loose = sorted(await self._run.snapshots.uncommitted(snapshot))[:MOST_FILES] if hooks else []
        if self._others(task):  # a turn has begun since: its changes are not the user's
            return
        self._note(msgspec.structs.replace(known, seen=seen, hooks=hooks, uncommitted=loose))

    async def _staged(self, repository: Repository, position: Position) -> dict[str, Entry | None]:
        files = self.files.files
        if position.head is None or not files:
            return {}
        staged = await repository.staged(position.head)
        return {path: entry for path, entry in staged.items() if path in files}

    def _inner(self, repository: Repository) -> list[tuple[str, str]]:
        inner = [path for path, file in self.files.files.items() if file.submodule]
        return [(path, content_of(repository.root / path)) for path in inner]

    async def _moved(self, known: Known, seen: Position, now: Position, repository: Repository) -> Known:
        """Return the new state if the user only added commits, or resumed here.

        Raises Suspend otherwise.
        """
        good = known.good
        if now.branch == good.branch and await _follows(repository, good, now):
            return msgspec.structs.replace(known, good=now if seen == good else good)
        if now.branch != good.branch:
            what = f"The checkout switched from {good.name} to {now.name}"
        else:
            what = f"The history of {now.name} was rewritten: commit {str(good.head)[:12]} is not in it"
        if now == known.told:
            self._run.say(f"{what}. The run continues from commit {str(now.head)[:12]}, because you resumed it there")
            return msgspec.structs.replace(known, good=now)
        self._note(msgspec.structs.replace(known, told=now))
        way = await _way_to(repository, good, now)
        when = "during a turn" if now == seen else "while no agent worked"
        id = self._run.session.name
        raise Suspend(
            f"{what}, {when}. To continue from where the run was: {way} && atomic resume {id}. "
            f"To continue with {now.name} as it is: atomic resume {id}",
            code=REASON,
        )

    async def _adopt(self, seen: Seen, repository: Repository, snapshot: FolderSnapshot | None = None) -> None:
        """Attribute the changes since then to the user: no turn has run."""
        position = await _position(repository)
        if position.head is None:
            return
        if snapshot is None:
            snapshot = await self._run.snapshots.take()
        await self._note_undone(seen, snapshot)
        staged = await self._staged(repository, position)
        changed = await self._run.snapshots.changed_names(FolderSnapshot(None, seen.tree), snapshot)
        changed |= {path for path in self.files.files if is_staged_otherwise(path, seen.staged, staged)}
        changed |= {path for path, content in seen.inner if content_of(repository.root / path) != content}
        if seen.inner:  # the user may have committed them inside
            uncommitted = (await uncommitted_in_submodules(repository)).files
            changed |= {path for path, _ in seen.inner if path not in uncommitted}
        if seen.position.head is not None and seen.position.head != position.head:
            changed |= await repository.differing(seen.position.head, position.head)
        if _open_checks[self._run.session]:  # checks of another task may have changed them
            changed -= self.files.files.keys()
        if changed:
            uncommitted = await self._run.snapshots.uncommitted_names(snapshot)
            files = await list_again(self.files, repository, position.head, uncommitted, changed, self._store)
            if files != self.files:
                self._facts.set(FACT, to_fact(files))

    async def _adopt_after_kill(self, known: Known, repository: Repository) -> Known:
        """Attribute changes after a killed turn's last sign of life to the user.

        The time of a deletion is unknown: it is attributed to the turn, and the copy of
        the file is kept.
        """
        end = last_sign_of_life(self._run.session)
        good = known.good
        now = await _position(repository)
        changed = await asyncio.to_thread(_changed_after, repository.root, list(self.files.files), end)
        if good.head is not None and good.head != now.head:
            last = await _last_of_turn(repository, good, now, end)
            if last is not None:
                changed |= await repository.differing(last, str(now.head))
            if last == good.head:
                known = msgspec.structs.replace(known, good=now)
        if changed and now.head is not None:
            uncommitted = await self._run.snapshots.uncommitted_names(await self._run.snapshots.take())
            files = await list_again(self.files, repository, now.head, uncommitted, changed, self._store)
            self._facts.set(FACT, to_fact(files))
        return known

    async def _judge(self, task: str) -> Try | None:
        """Return a forbidden change of the turn, with the commands that undo it, or
        None.
        """
        known = self._known()
        repository = find_repository(self._run.cwd)
        if known is None:
            return None
        if repository is None:
            return Try("git", GONE, "the turn deleted the repository: .git is gone")
        now = await _position(repository)
        if now.branch != known.good.branch or not await _follows(repository, known.good, now):
            failed = Try("git", await _way_home(repository, known.good, now), _said(known.good, now))
        else:
            failed = await self._files_after_turn(known, now, repository, task)
        lost = await self._refs.end(repository, task, known.good.branch)
        if not lost:
            return failed
        text = way_back_of_refs(lost)
        reason = "; ".join(one.said for one in lost[:3])
        if failed is not None:
            text = f"{failed.trouble}\n\n{text}"
            reason = f"{failed.reason}; {reason}"
        return Try("git", text, reason)

    async def _files_after_turn(self, known: Known, now: Position, repository: Repository, task: str) -> Try | None:
        files = self.files
        if not files.files or known.good.head is None:
            self._note(msgspec.structs.replace(known, good=now))
            return None
        await self._adopt_own_commits(known.good.head, str(now.head), repository)
        files = self.files
        troubles = await self._find_troubles(known.good.head, repository, task)
        inner = {path for path, file in files.files.items() if file.submodule}
        published = {path for path, trouble in troubles.items() if trouble.kind == "committed"} - inner
        if not published:
            self._note(msgspec.structs.replace(known, good=now))
        # A touched file fails only one attempt: the user may have touched it, and the
        # report says so anyway. A file in a commit fails each attempt, because it would
        # be published with the work.
        own = {
            path: trouble
            for path, trouble in troubles.items()
            if trouble.task == task and (path in published or path not in files.troubles)
        }
        if not own:
            return None
        kept = with_versions(self.files, own, self._store, time.time())
        if kept.versions != files.versions:
            self._facts.set(FACT, to_fact(kept))
        text = way_back(files, own, known.good.head, self._store, self._run.make_notes())
        reason = "; ".join(describe(shown(path), trouble) for path, trouble in list(own.items())[:3])
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        return Try("git", text, f"your uncommitted work was touched: {reason}{more} (by the turn, or by you)")

    async def _adopt_own_commits(self, since: str, head: str, repository: Repository) -> None:
        """Attribute files to the project that the user has probably committed during
        the turn; the report lists them.

        The earlier content of such a file is kept if the commit has changed it.
        """
        files = self.files
        own = await own_commits(files, repository, since, head)
        if not own:
            return
        versions = dict(files.versions)
        for path, file in files.files.items():
            if path in own and self._store.has(file.content) and content_of(repository.root / path) != file.content:
                versions[path] = [*versions.get(path, []), Version(file.content, file.mode, time.time())]
        others = {path: trouble for path, trouble in files.troubles.items() if path not in own}
        uncommitted = await self._run.snapshots.uncommitted_names(await self._run.snapshots.take())
        again = await list_again(
            msgspec.structs.replace(files, troubles=others), repository, head, uncommitted, own, self._store
        )
        committed = {**files.committed, **own}
        self._facts.set(FACT, to_fact(msgspec.structs.replace(again, committed=committed, versions=versions)))

    async def _find_troubles(self, since: str, repository: Repository, task: str) -> dict[str, Trouble]:
        """Record unwanted changes of the user's files, and keep their current content."""
        files = self.files
        troubles = await troubles_of(files, repository, since, task)
        for path, trouble in troubles.items():
            # The user may have written it just now. Content that checks write
            # repeatedly is kept once.
            if trouble.task != CHECKS or path not in files.troubles:
                self._store.keep(repository.root / path, trouble.content)
        if troubles != files.troubles:
            self._facts.set(FACT, to_fact(msgspec.structs.replace(files, troubles=troubles)))
        return troubles

    def _repository(self) -> Repository | None:
        """Return the repository.

        Raises Suspend if the run began in one that no longer exists.
        """
        found = find_repository(self._run.cwd)
        if found is None and self._known() is not None:
            self._suspend_without(".git does not exist")
        return found

    def _suspend_without(self, why: str) -> NoReturn:
        raise Suspend(
            f"The repository of {self._run.cwd} is gone: {why}. Restore it (from where it was moved, a clone or a"
            f" backup), then atomic resume {self._run.session.name}",
            code=REASON,
        )

    def _known(self) -> Known | None:
        found: Any = self._facts.get(POSITION)
        return None if found is None else _read_known(found)

    def _note(self, known: Known) -> None:
        if known != self._known():
            self._facts.set(POSITION, to_fact(known))


def _with_old_troubles(files: UsersFiles, before: UsersFiles) -> UsersFiles:
    """Return the list, with files of an earlier one that are still as a check left
    them.
    """
    root = Path(files.root)
    troubles = {path: one for path, one in before.troubles.items() if content_of(root / path) == one.content}
    known = {**files.files, **{path: before.files[path] for path in troubles}}
    return msgspec.structs.replace(
        files,
        files=dict(sorted(known.items())),
        troubles=troubles,
        versions=before.versions,
        committed=before.committed,
    )


def is_staged_otherwise(path: str, one: Mapping[str, Entry | None], other: Mapping[str, Entry | None]) -> bool:
    """Return whether a file is staged differently in two listings."""
    return (path in one, one.get(path)) != (path in other, other.get(path))


async def _position(repository: Repository) -> Position:
    return Position(*await repository.head())


async def _follows(repository: Repository, old: Position, new: Position) -> bool:
    """Return whether the new history contains the old one."""
    if old.head is None or old.head == new.head:
        return True
    return new.head is not None and await repository.is_ancestor(old.head, new.head)


def _changed_after(root: Path, paths: Sequence[str], end: float) -> set[str]:
    """Return the existing files that were changed after this time."""
    return {path for path in paths if os.path.lexists(root / path) and changed_at(root / path) > end}


async def _last_of_turn(repository: Repository, good: Position, now: Position, end: float) -> str | None:
    """Return the last commit until this time, or None if the branch changed in another
    way.
    """
    if now.branch != good.branch or not await _follows(repository, good, now):
        return None
    commits = (await repository.git("log", "--format=%H %ct", f"{good.head}..{now.head}")).split()
    pairs = zip(commits[::2], commits[1::2], strict=True)
    return next((commit for commit, time in pairs if int(time) <= end), good.head)


def _said(good: Position, now: Position) -> str:
    if now.branch != good.branch:
        return f"the turn left the branch {good.name} for {now.name}"
    return f"the turn rewrote the history of {good.name}: commit {str(good.head)[:12]} is not in it"


def _switch_to(good: Position) -> str:
    return f"git switch {quote(good.name)}" if good.branch is not None else f"git switch --detach {good.head}"


async def _way_to(repository: Repository, good: Position, now: Position) -> str:
    """Return the command that brings the user back to the last good commit.

    No commit and no change is lost.
    """
    if now.branch != good.branch:
        return _switch_to(good)
    if now.head is None or await repository.is_ancestor(now.head, str(good.head)):
        return f"git merge --ff-only {good.head}"
    return f"git branch rewritten-{now.head[:12]} && git reset --keep {good.head}"


async def _way_home(repository: Repository, good: Position, now: Position) -> str:
    """Return the prompt for a worker that has left the branch or rewritten it."""
    lines: list[str] = []
    if now.branch != good.branch:
        made = [] if good.head is None or now.head is None else await repository.commits(good.head, now.head)
        lines.append(_switch_to(good))
        lines += [f"git cherry-pick {commit}" for commit in reversed(made[:20])]
    elif now.head is not None and await repository.is_ancestor(now.head, str(good.head)):
        lines.append(f"git merge --ff-only {good.head}")
    else:
        lines.append(f"git reset --soft {good.head}")
        lines.append("git commit --only -- YOUR FILES")
    return (
        f"{_said(good, now).capitalize()}. Only add commits to the branch that is checked out: no other branch, no "
        "`commit --amend`, `rebase` or `reset` of commits that were there before. The way back, one step after the "
        "other (look at `git status` between them):\n\n```sh\n" + "\n".join(lines) + "\n```"
    )


def _announced(files: UsersFiles) -> str:
    count = len(files.files) + files.unlisted
    number = "1 file is" if count == 1 else f"{count} files are"
    them = "it" if count == 1 else "them"
    one = "it" if count == 1 else "one"
    lost = [path for path, file in files.files.items() if file.not_kept]
    kept = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
    if files.unlisted:
        kept += f" Only the first {len(files.files):,} are watched: commit or ignore the others."
    return (
        f"{number} not committed and yours: {named(files.paths, most=5)}. Workers must not touch {them}. "
        f"If a run should change {one}, commit it first.{kept}"
    )
