"""The user's checkout between turns: its branch, its history, and the files in it that are the user's own.

A turn may add commits to the branch that was checked out, and nothing else: it may not leave the branch, rewrite it, or
touch the user's uncommitted files. What moves while no turn runs, the user has moved: the run pauses and says so.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from atomic.git import Picture, Repository, find_repository
from atomic.graph import Suspend
from atomic.workflows.ralph.desk import Desk, read_turns
from atomic.workflows.ralph.hidden_files import HiddenFiles
from atomic.workflows.ralph.own_work import changed_at, last_sign_of_life
from atomic.workflows.ralph.state import Try
from atomic.workflows.ralph.users_files import (
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
from atomic.workflows.ralph.users_refs import UsersRefs
from atomic.workflows.ralph.users_refs import way_back as way_back_of_refs

POSITION = "position"
CHECKING = "checking"  # the fact that checks run while the user has uncommitted files
REASON = "branch_changed"
GONE = "Your turn has deleted the folder .git, and with it the history of the project. Never do that."


class Position(msgspec.Struct, frozen=True):
    """A commit and the branch that it is on; None: there is none."""

    head: str | None
    branch: str | None

    @property
    def name(self) -> str:
        """The branch in words."""
        if self.branch is None:
            return f"no branch (HEAD is {str(self.head)[:12]})"
        return self.branch.removeprefix("refs/heads/")


class Seen(msgspec.Struct, frozen=True):
    """The checkout at a moment when no turn was under way."""

    position: Position
    tree: str  # of all files
    staged: dict[str, Entry | None] = {}  # what the index has of the user's files and HEAD has not
    inner: list[
        tuple[str, str]
    ] = []  # the user's files in submodules, which the tree does not have, and their contents


class Known(msgspec.Struct, frozen=True):
    """Where the work belongs, and what was seen last; a fact of the run."""

    good: Position  # the last one that a turn was right to leave
    seen: Seen | None = None  # None: a turn is under way
    hooks: list[str] = []  # that may refuse a commit
    uncommitted: list[str] = []  # the files that were in no commit then, where there are such hooks
    told: Position | None = None  # the user was told of it


def _read_known(fact: Any) -> Known:
    return msgspec.convert(from_fact(fact), Known)


def commit_hooks(facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The hooks that could have refused a commit of the run, and the files that are in none."""
    found = facts.get(POSITION, {})
    return found.get("hooks", []), found.get("uncommitted", [])


def index_after_turn(facts: Mapping[str, Any]) -> tuple[str | None, dict[str, Entry | None]]:
    """Return what the index had of the user's files after the last turn, and the commit that it differs from."""
    found = facts.get(POSITION)
    seen = None if found is None else _read_known(found).seen
    return (None, {}) if seen is None else (seen.position.head, seen.staged)


def is_turn_open(facts: Mapping[str, Any]) -> bool:
    """Return whether a turn or a check has begun and never ended: what it touched is not known."""
    found = facts.get(POSITION)
    if facts.get(CHECKING):
        return True
    return found is not None and _read_known(found).seen is None


_open_checks: Counter[Path] = Counter()  # by session folder, in this process: those of a killed one have ended


class Checkout:
    """What a node asks about the checkout; in a folder without git it has nothing to say."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._facts = desk, desk.facts
        self.failed: Try | None = None
        self._store, self._refs = Store(desk.session, desk.redactor), UsersRefs(desk.facts)
        repository = find_repository(desk.cwd)
        root = desk.cwd if repository is None else repository.root
        self._hidden = HiddenFiles(desk.facts, desk.session, root, [gate.command for gate in desk.book.gates])

    @property
    def files(self) -> UsersFiles:
        return read_users_files(self._facts)

    # at the start --------------------------------------------------------------------------------------------------

    async def begin(self, now: Picture) -> None:
        """Note where the work belongs, and which files are the user's. No check may have run before.

        At a resume, what an earlier start noted of damaged files is kept, and files that checks wrote are not listed.
        """
        repository = find_repository(self._desk.cwd)
        if repository is None:
            await self._keep_existing(self._desk.cwd, now, "git init && git add -A && git commit")
            return
        if (known := self._known()) is not None and self._were_checks_cut():
            await self._recover_checks(known, repository)
        before, position = self.files, await _position(repository)
        is_bisect = repository.operation() == "bisect"
        if is_bisect and position.branch is None:
            self._desk.say(
                "A git bisect is in progress: the commits of this run will be on no branch, and git bisect reset leaves"
                " them. End it first (git bisect reset)"
            )
        elif is_bisect:
            self._desk.say(
                f"A git bisect is in progress and {position.name} is checked out: the commits of this run will be on "
                f"{position.name}. If they belong elsewhere, end the bisect first (git bisect reset)"
            )
        elif position.branch is None:
            self._desk.say(
                "HEAD is detached: the commits of this run will be on no branch. git switch -c NAME gives them one"
            )
        self._note(Known(position, Seen(position, now.tree)))
        # Without a commit there is no line between the user's files and the project: all of it is the project.
        if position.head is None:
            await self._keep_existing(repository.root, now, "git add -A && git commit")
            return
        uncommitted = await self._desk.pictures.uncommitted_names(now)
        written = {*self._desk.book.leftovers} - before.files.keys()
        files = await list_users_files(repository, position.head, uncommitted, self._store, without=written)
        files = _with_old_troubles(files, before)
        if files.files or before.files or before.versions or before.committed:
            self._facts.set(FACT, to_fact(files))
            staged = await self._staged(repository, position)
            self._note(Known(position, Seen(position, now.tree, staged, self._inner(repository))))
        if files.files:
            self._desk.say(_announced(files))
        if files.unreadable:
            self._desk.say(f"Uncommitted work in {named(files.unreadable)} is not protected: git cannot read it")

    async def _keep_existing(self, root: Path, now: Picture, commands: str) -> None:
        """Keep copies of the files that are there before the first turn of a run without a commit."""
        if self._facts.get(EXISTING) is not None:
            return
        files = await asyncio.to_thread(list_existing, root, await self._desk.pictures.names(now), self._store)
        self._facts.set(EXISTING, to_fact(files))
        if not files.files:
            return
        lost = [path for path, file in files.files.items() if file.not_kept]
        kept = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
        if files.unlisted:
            kept += f" Only the first {len(files.files):,} files are watched."
        self._desk.say(
            "This folder has no commit: agents may change and delete every file in it, and git cannot bring one back. "
            f"To be safe, run {commands} first. After the run, atomic salvage {self._desk.session.name} PATH puts a "
            f"file back.{kept}"
        )

    # around checks -------------------------------------------------------------------------------------------------

    async def begin_checks(self, before: Picture) -> None:
        """Take for the user's what has changed since the last turn, so that what changes from here on is a check's."""
        known, repository = self._known(), find_repository(self._desk.cwd)
        if known is not None and repository is not None and not self._others(""):
            if self._were_checks_cut():
                await self._recover_checks(known, repository)
            elif known.seen is not None:
                await self._adopt(known.seen, repository, before)
            await self._refs.begin(repository, known.good.branch)
        _open_checks[self._desk.session] += 1
        if self.files.files and not self._facts.get(CHECKING):
            self._facts.set(CHECKING, True)

    async def end_checks(self, before: Picture) -> Picture:
        """Report what the checks have done to the user's files; the folder as it is after them.

        Other files that they leave are no one's work.
        """
        _open_checks[self._desk.session] -= 1
        after = await self._desk.pictures.take() if self._desk.cwd.is_dir() else before
        known, repository = self._known(), find_repository(self._desk.cwd)
        # Where a worker's turn is under way, its end finds what is wrong.
        if known is not None and known.seen is not None and repository is not None and not self._others(""):
            await self._report_checks(known, repository)
            if lost := await self._refs.end(repository, CHECKS, known.good.branch):
                self._desk.say(f"{'; '.join(one.said for one in lost[:3])}. `{lost[0].way_back}` brings it back")
            if await _position(repository) == known.seen.position:
                await self._see("", after)
        if self._facts.get(CHECKING) and not _open_checks[self._desk.session]:
            self._facts.set(CHECKING, False)
        return after

    async def _report_checks(self, known: Known, repository: Repository) -> None:
        if not self.files.files or known.good.head is None:
            return
        before = self.files.troubles
        found = await self._find_troubles(known.good.head, repository, CHECKS)
        if new := [describe(shown(path), trouble) for path, trouble in found.items() if path not in before]:
            more = f" and {len(new) - 3} more" if len(new) > 3 else ""
            self._desk.say(
                f"your uncommitted work was touched: {'; '.join(new[:3])}{more}. "
                f"After the run, `atomic salvage {self._desk.session.name}` puts it back"
            )

    def _were_checks_cut(self) -> bool:
        """Return whether Atomic was killed while checks ran."""
        return bool(self._facts.get(CHECKING)) and not _open_checks[self._desk.session]

    async def _recover_checks(self, known: Known, repository: Repository) -> Known:
        """Tell what killed checks have done to the user's files from what the user has done since."""
        known = await self._adopt_after_kill(known, repository)
        await self._report_checks(known, repository)
        self._facts.set(CHECKING, False)
        return known

    # around a turn -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, task: str, *, is_repair: bool, hidden_as: str = "") -> AsyncGenerator[None]:
        """Watch a turn, also one that is cut; `failed` is what it must not have done. Raises Suspend where its work
        would go somewhere else.

        `is_repair`: the turn is to bring back what the one before it has moved. `hidden_as`: the name under which
        `hidden_changes` finds what the turn has changed, if it is not that of the task.
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
            self._desk.say(f"This project is too large to watch every file that git ignores: {what}")
        try:
            yield
        finally:
            await self._hidden.end_turn(hidden_as or task)
            self.failed = await self._judge(task)
            await self._see(task)

    def hidden_changes(self, task: str) -> list[str]:
        """The steering files and tools that turns of a task have changed although git ignores them."""
        return self._hidden.changed_by(task)

    def _others(self, task: str) -> bool:
        """Whether another turn is under way: then nobody can tell who has moved what."""
        return bool(read_turns(self._facts).open - {task, ""})

    async def stay(self) -> None:
        """Raises Suspend where the checkout is not on the branch of the run, or its history was rewritten."""
        repository, known = self._repository(), self._known()
        if known is None or known.seen is None or repository is None or self._others(""):
            return
        moved = await self._moved(known, known.seen.position, await _position(repository), repository)
        self._note(msgspec.structs.replace(moved, told=None))

    async def _see(self, task: str, picture: Picture | None = None) -> None:
        """Note what is there: whatever differs when the next turn begins is the user's."""
        known, repository = self._known(), find_repository(self._desk.cwd)
        if known is None or repository is None or self._others(task):
            return
        position = await _position(repository)
        if picture is None:
            picture = await self._desk.pictures.take()
        seen = Seen(position, picture.tree, await self._staged(repository, position), self._inner(repository))
        hooks = await repository.commit_hooks()
        loose = sorted(await self._desk.pictures.uncommitted(picture))[:MOST_FILES] if hooks else []
        if self._others(task):  # a turn has begun meanwhile: what it changes must not look like the user's
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
        """The user may add commits to the branch. Anything else stops the run, until the user resumes it there."""
        good = known.good
        if now.branch == good.branch and await _follows(repository, good, now):
            return msgspec.structs.replace(known, good=now if seen == good else good)
        if now.branch != good.branch:
            what = f"The checkout switched from {good.name} to {now.name}"
        else:
            what = f"The history of {now.name} was rewritten: commit {str(good.head)[:12]} is not in it"
        if now == known.told:
            self._desk.say(f"{what}. The run continues from commit {str(now.head)[:12]}, because you resumed it there")
            return msgspec.structs.replace(known, good=now)
        way = await _way_to(repository, good, now)
        raise self._pause(known, now, f"{what}, {'during a turn' if now == seen else 'while no agent worked'}", way)

    def _pause(self, known: Known, now: Position, what: str, way: str) -> Suspend:
        self._note(msgspec.structs.replace(known, told=now))
        id = self._desk.session.name
        return Suspend(
            f"{what}. To continue from where the run was: {way} && atomic resume {id}. "
            f"To continue with {now.name} as it is: atomic resume {id}",
            code=REASON,
        )

    async def _adopt(self, seen: Seen, repository: Repository, picture: Picture | None = None) -> None:
        """Take what has changed since then for the user's: no turn has done it."""
        position = await _position(repository)
        if position.head is None:
            return
        if picture is None:
            picture = await self._desk.pictures.take()
        staged = await self._staged(repository, position)
        changed = await self._desk.pictures.changed_names(Picture(None, seen.tree), picture)
        changed |= {path for path in self.files.files if is_staged_otherwise(path, seen.staged, staged)}
        changed |= {path for path, content in seen.inner if content_of(repository.root / path) != content}
        if seen.position.head is not None and seen.position.head != position.head:
            changed |= await repository.differing(seen.position.head, position.head)
        if _open_checks[self._desk.session]:  # of another task: its checks may have changed them
            changed -= self.files.files.keys()
        if changed:
            uncommitted = await self._desk.pictures.uncommitted_names(picture)
            files = await list_again(self.files, repository, position.head, uncommitted, changed, self._store)
            if files != self.files:
                self._facts.set(FACT, to_fact(files))

    async def _adopt_after_kill(self, known: Known, repository: Repository) -> Known:
        """Take for the user's what changed after the last sign of life of a turn that was killed.

        When a file was deleted cannot be seen: that stays the turn's doing, and its copy is kept.
        """
        end, good, now = last_sign_of_life(self._desk.session), known.good, await _position(repository)
        changed = await asyncio.to_thread(_changed_after, repository.root, list(self.files.files), end)
        if good.head is not None and good.head != now.head:
            last = await _last_of_turn(repository, good, now, end)
            if last is not None:
                changed |= await repository.differing(last, str(now.head))
            if last == good.head:
                known = msgspec.structs.replace(known, good=now)
        if changed and now.head is not None:
            uncommitted = await self._desk.pictures.uncommitted_names(await self._desk.pictures.take())
            files = await list_again(self.files, repository, now.head, uncommitted, changed, self._store)
            self._facts.set(FACT, to_fact(files))
        return known

    async def _judge(self, task: str) -> Try | None:
        """What the turn must not have done, and the way back; None: nothing."""
        known, repository = self._known(), find_repository(self._desk.cwd)
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
        texts, reasons = [way_back_of_refs(lost)], ["; ".join(one.said for one in lost[:3])]
        if failed is not None:
            texts, reasons = [failed.trouble, *texts], [failed.reason, *reasons]
        return Try("git", "\n\n".join(texts), "; ".join(reasons))

    async def _files_after_turn(self, known: Known, now: Position, repository: Repository, task: str) -> Try | None:
        files = self.files
        if not files.files or known.good.head is None:
            self._note(msgspec.structs.replace(known, good=now))
            return None
        await self._adopt_own_commits(known.good.head, str(now.head), repository)
        files = self.files
        troubles = await self._find_troubles(known.good.head, repository, task)
        if not any(trouble.kind == "committed" for trouble in troubles.values()):
            self._note(msgspec.structs.replace(known, good=now))
        # A file that stays touched fails no second attempt: it may have been the user, and the report says it anyway.
        # One that stays in a commit would be published with the work.
        own = {
            path: trouble
            for path, trouble in troubles.items()
            if trouble.task == task and (trouble.kind == "committed" or path not in files.troubles)
        }
        if not own:
            return None
        kept = with_versions(self.files, own, self._store, time.time())
        if kept.versions != files.versions:
            self._facts.set(FACT, to_fact(kept))
        text = way_back(files, own, known.good.head, self._store, self._desk.make_notes())
        reason = "; ".join(describe(shown(path), trouble) for path, trouble in list(own.items())[:3])
        more = f" and {len(own) - 3} more" if len(own) > 3 else ""
        return Try("git", text, f"your uncommitted work was touched: {reason}{more} (by the turn, or by you)")

    async def _adopt_own_commits(self, since: str, head: str, repository: Repository) -> None:
        """Take files for the project's that the user has probably committed during the turn; the title says it.

        What such a file had before is kept, where the commit has changed it.
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
        uncommitted = await self._desk.pictures.uncommitted_names(await self._desk.pictures.take())
        again = await list_again(
            msgspec.structs.replace(files, troubles=others), repository, head, uncommitted, own, self._store
        )
        committed = {**files.committed, **own}
        self._facts.set(FACT, to_fact(msgspec.structs.replace(again, committed=committed, versions=versions)))

    async def _find_troubles(self, since: str, repository: Repository, task: str) -> dict[str, Trouble]:
        """Note what is wrong with the user's files now, and keep what is there instead."""
        files = self.files
        troubles = await troubles_of(files, repository, since, task)
        for path, trouble in troubles.items():
            # The user may have written it just now. What a check writes again and again is kept once.
            if trouble.task != CHECKS or path not in files.troubles:
                self._store.keep(repository.root / path, trouble.content)
        if troubles != files.troubles:
            self._facts.set(FACT, to_fact(msgspec.structs.replace(files, troubles=troubles)))
        return troubles

    def _repository(self) -> Repository | None:
        """Return the repository. Raises Suspend where the run began in one that is no longer there."""
        found = find_repository(self._desk.cwd)
        if found is None and self._known() is not None:
            id = self._desk.session.name
            raise Suspend(
                f"The repository of {self._desk.cwd} is gone: .git does not exist. Restore it (from a clone or a"
                f" backup), then atomic resume {id}",
                code=REASON,
            )
        return found

    def _known(self) -> Known | None:
        found: Any = self._facts.get(POSITION)
        return None if found is None else _read_known(found)

    def _note(self, known: Known) -> None:
        if known != self._known():
            self._facts.set(POSITION, to_fact(known))


def _with_old_troubles(files: UsersFiles, before: UsersFiles) -> UsersFiles:
    """Return the list with those files of an earlier one that are still as a check left them."""
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
    """Tell whether a file is staged differently in two listings of what is staged."""
    return (path in one, one.get(path)) != (path in other, other.get(path))


async def _position(repository: Repository) -> Position:
    return Position(*await repository.head())


async def _follows(repository: Repository, old: Position, new: Position) -> bool:
    """Whether nothing of the history is lost."""
    if old.head is None or old.head == new.head:
        return True
    return new.head is not None and await repository.is_ancestor(old.head, new.head)


def _changed_after(root: Path, paths: Sequence[str], end: float) -> set[str]:
    """Return the files that are there and were changed after this time."""
    return {path for path in paths if os.path.lexists(root / path) and changed_at(root / path) > end}


async def _last_of_turn(repository: Repository, good: Position, now: Position, end: float) -> str | None:
    """Return the commit since which all were made after this time; None where the branch has changed otherwise."""
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
    """Return the command that brings the user back to the last good commit; no commit and no change is lost."""
    if now.branch != good.branch:
        return _switch_to(good)
    if now.head is None or await repository.is_ancestor(now.head, str(good.head)):
        return f"git merge --ff-only {good.head}"
    return f"git branch rewritten-{now.head[:12]} && git reset --keep {good.head}"


async def _way_home(repository: Repository, good: Position, now: Position) -> str:
    """What a worker is told that has left the branch or rewritten it."""
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
    many, them, one = ("1 file is", "it", "it") if count == 1 else (f"{count} files are", "them", "one")
    lost = [path for path, file in files.files.items() if file.not_kept]
    kept = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
    if files.unlisted:
        kept += f" Only the first {len(files.files):,} are watched: commit or ignore the others."
    return (
        f"{many} not committed and yours: {named(files.paths, most=5)}. Workers must not touch {them}. "
        f"If a run should change {one}, commit it first.{kept}"
    )
