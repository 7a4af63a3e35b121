"""The user's checkout between turns: its branch, its history, and the user's
uncommitted files.

A turn may only add commits to the current branch. It may not leave the branch, rewrite
it, or touch the user's uncommitted files. A change of the branch while no turn runs
comes from the user: the run pauses with a message.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from atomic.git import FolderSnapshot, Repository, find_repository, uncommitted_in_submodules
from atomic.graph import Suspend
from atomic.ralph.file_copies import content_of
from atomic.ralph.file_names import first_of, named, shown, to_fact
from atomic.ralph.hidden_files import HiddenFiles
from atomic.ralph.position import (
    CHECKING,
    POSITION,
    Known,
    Position,
    Seen,
    as_sentence,
    command_to_return,
    describe_move,
    follows,
    is_staged_otherwise,
    last_of_turn,
    place_warning,
    position_of,
    prompt_to_return,
    read_known,
)
from atomic.ralph.run_folder import RunFolder, read_turns
from atomic.ralph.state import Try
from atomic.ralph.turn_changes import changed_after, last_sign_of_life
from atomic.ralph.undone_tasks import note_undone_tasks
from atomic.ralph.users_files import (
    CHECKS,
    FACT,
    MOST_FILES,
    UsersFiles,
    announcement,
    describe,
    list_again,
    list_users_files,
    prompt_to_restore_files,
    with_deleted_versions,
    with_old_troubles,
    with_versions,
)
from atomic.ralph.users_refs import UsersRefs, prompt_to_restore_refs
from atomic.ralph.watched_files import WatchedFiles

REASON = "branch_changed"
GIT_DELETED = "Your turn has deleted the folder .git, and with it the history of the project. Never do that."


_open_checks: Counter[Path] = Counter()  # by session folder, in this process


class Checkout:
    """The checkout around turns and checks.

    In a folder without git its methods do nothing.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._facts = run.facts
        self.failed: Try | None = None
        self._watched = WatchedFiles(run)
        self._refs = UsersRefs(run.facts)
        repository = find_repository(run.cwd)
        root = run.cwd if repository is None else repository.root
        commands = run.checks.commands
        self.hidden = HiddenFiles(run.facts, run.session, root, run.cwd.resolve(), commands)

    @property
    def files(self) -> UsersFiles:
        return self._watched.known

    async def begin(self, now: FolderSnapshot) -> None:
        """Record the branch of the work and the user's uncommitted files, before any
        check runs.

        On a resume, troubles of files that an earlier start recorded are kept, and
        files that checks wrote are not listed.
        """
        repository = find_repository(self._run.cwd)
        if repository is None:
            await self._watched.keep_existing(self._run.cwd, now, "git init && git add -A && git commit")
            return
        if (known := self._known()) is not None and self._were_checks_cut():
            await self._recover_checks(known, repository, now)
        before = self.files
        position = await position_of(repository)
        is_dry = self._run.options.dry_run  # it changes nothing, so there is nothing to warn of
        warning = place_warning(position, is_bisect=repository.operation() == "bisect")
        if warning and not is_dry:
            self._run.say(warning)
        self._note(Known(position, Seen(position, now.tree)))
        # Without a commit nothing separates the user's files from the project: all
        # belong to it.
        if position.head is None:
            await self._watched.keep_existing(repository.root, now, "git add -A && git commit")
            return
        uncommitted = await self._run.snapshots.uncommitted_names(now)
        written = {*self._run.checks.leftovers} - before.files.keys()
        files = await list_users_files(repository, position.head, uncommitted, self._watched.store, without=written)
        files = with_old_troubles(files, before)
        if files.files or before.files or before.versions or before.committed:
            self._facts.set(FACT, to_fact(files))
            staged = await self._watched.staged(repository, position)
            self._note(Known(position, Seen(position, now.tree, staged, self._watched.inner(repository))))
        if files.files and not is_dry:
            self._run.say(announcement(files))
        if files.unreadable:
            self._run.say(f"Uncommitted work in {named(files.unreadable)} is not protected: git cannot read it")

    async def begin_checks(self, before: FolderSnapshot) -> None:
        """Attribute the changes since the last turn to the user, so that later changes
        belong to the checks.
        """
        known = self._known()
        repository = find_repository(self._run.cwd)
        if known is not None and repository is not None and not self._others(""):
            if self._were_checks_cut():
                await self._recover_checks(known, repository, before)
            elif known.seen is not None:
                await self._adopt(known.seen, repository, before)
            await self._refs.begin(repository, known.allowed.branch)
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
            if lost := await self._refs.end(repository, CHECKS, known.allowed.branch):
                self._run.say(f"{'; '.join(one.said for one in lost[:3])}. `{lost[0].restore_command}` brings it back")
            if await position_of(repository) == known.seen.position:
                await self._see("", after)
        if self._facts.get(CHECKING) and not _open_checks[self._run.session]:
            self._facts.set(CHECKING, False)
        return after

    async def _report_checks(self, known: Known, repository: Repository) -> None:
        if not self.files.files or known.allowed.head is None:
            return
        before = self.files.troubles
        found = await self._watched.find_troubles(known.allowed.head, repository, CHECKS)
        if new := [describe(shown(path), trouble) for path, trouble in found.items() if path not in before]:
            self._run.say(
                f"your uncommitted work was touched: {first_of(new, most=3, separator='; ')}. "
                f"After the run, `atomic salvage {self._run.session.name}` puts it back"
            )

    def _were_checks_cut(self) -> bool:
        """Return whether Atomic was killed while checks ran."""
        return bool(self._facts.get(CHECKING)) and not _open_checks[self._run.session]

    async def _recover_checks(self, known: Known, repository: Repository, snapshot: FolderSnapshot) -> Known:
        """Separate changes of the user's files by killed checks from later changes by
        the user.
        """
        known = await self._adopt_after_kill(known, repository, snapshot)
        await self._report_checks(known, repository)
        self._facts.set(CHECKING, False)
        return known

    @asynccontextmanager
    async def turn(self, task: str, *, is_repair: bool, hidden_as: str = "") -> AsyncGenerator[None]:
        """Watch a turn, and set `failed` to a forbidden change that it made.

        `is_repair`: the turn must undo a change of the turn before it. `hidden_as`: the
        name for `hidden.changed_by`, if it is not the task. Raises Suspend if the branch
        has changed.
        """
        repository = self._repository()
        if (known := self._known()) is not None and repository is not None and not self._others(task):
            before = await self._run.snapshots.take()
            if (seen := known.seen) is not None:
                now = await position_of(repository)
                if not is_repair or now != seen.position:
                    known = await self._moved(known, seen.position, now, repository)
                if self._were_checks_cut():
                    known = await self._recover_checks(known, repository, before)
                else:
                    await self._adopt(seen, repository, before)
            else:
                known = await self._adopt_after_kill(known, repository, before)
                await self._refs.end(repository, task, known.allowed.branch)
            await self._refs.begin(repository, known.allowed.branch)
            self._note(msgspec.structs.replace(known, seen=None, tree=before.tree, reported=None))
        if self._run.is_isolated:
            yield
            return
        if cut := await self.hidden.begin_turn():
            what = f"{cut} and the folders after it are not watched"
            self._run.say(f"This project is too large to watch every file that git ignores: {what}")
        try:
            yield
        finally:
            await self.hidden.end_turn(hidden_as or task)
            self.failed = await self._judge(task)
            await self._see(task)

    def _others(self, task: str) -> bool:
        """Return whether another turn is running: then changes cannot be attributed."""
        return bool(read_turns(self._facts).open - {task, ""})

    async def require_repository(self) -> None:
        """Raise Suspend if the repository of the run is gone, or replaced by another."""
        repository = self._repository()
        known = self._known()
        if repository is None or known is None or known.allowed.head is None:
            return
        if not await repository.has_commit(known.allowed.head):
            missing = f"commit {known.allowed.head[:12]} is not in it"
            self._suspend_without(f"{self._run.cwd} has another repository than before: {missing}")

    async def stay(self) -> None:
        """Raise Suspend if the checkout is not on the branch of the run, or its history
        was rewritten.
        """
        repository = self._repository()
        known = self._known()
        if known is None or known.seen is None or repository is None or self._others(""):
            return
        moved = await self._moved(known, known.seen.position, await position_of(repository), repository)
        self._note(msgspec.structs.replace(moved, reported=None))

    async def note_undone(self, now: FolderSnapshot) -> None:
        """Record finished tasks whose changes are gone since the last turn."""
        known = self._known()
        if known is not None and known.seen is not None and not self._others(""):
            await note_undone_tasks(self._run, FolderSnapshot(None, known.seen.tree), now)

    async def _see(self, task: str, snapshot: FolderSnapshot | None = None) -> None:
        """Record the checkout: changes until the next turn begins belong to the user."""
        known = self._known()
        repository = find_repository(self._run.cwd)
        if known is None or repository is None or self._others(task):
            return
        position = await position_of(repository)
        if snapshot is None:
            snapshot = await self._run.snapshots.take()
        seen = Seen(
            position, snapshot.tree, await self._watched.staged(repository, position), self._watched.inner(repository)
        )
        hooks = await repository.commit_hooks()
        loose = sorted(await self._run.snapshots.uncommitted(snapshot))[:MOST_FILES] if hooks else []
        if self._others(task):  # a turn has begun since: its changes are not the user's
            return
        self._note(msgspec.structs.replace(known, seen=seen, hooks=hooks, uncommitted=loose))

    async def _moved(self, known: Known, seen: Position, now: Position, repository: Repository) -> Known:
        """Return the new state if the user only added commits, or resumed here.

        Raises Suspend otherwise.
        """
        allowed = known.allowed
        if now.branch == allowed.branch and await follows(repository, allowed, now):
            return msgspec.structs.replace(known, allowed=now if seen == allowed else allowed)
        what = as_sentence(describe_move(allowed, now, by_turn=False))
        if now == known.reported:
            self._run.say(f"{what}. The run continues from commit {str(now.head)[:12]}, because you resumed it there")
            return msgspec.structs.replace(known, allowed=now)
        self._note(msgspec.structs.replace(known, reported=now))
        command = await command_to_return(repository, allowed, now)
        when = "during a turn" if now == seen else "while no agent worked"
        id = self._run.session.name
        raise Suspend(
            f"{what}, {when}. To continue from where the run was: {command} && atomic resume {id}. "
            f"To continue with {now.name} as it is: atomic resume {id}",
            code=REASON,
        )

    async def _adopt(self, seen: Seen, repository: Repository, snapshot: FolderSnapshot) -> None:
        """Attribute the changes since then to the user: no turn has run."""
        position = await position_of(repository)
        if position.head is None:
            return
        before = FolderSnapshot(None, seen.tree)
        await note_undone_tasks(self._run, before, snapshot)
        staged = await self._watched.staged(repository, position)
        changed = await self._run.snapshots.changed_names(before, snapshot)
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
            files = await list_again(self.files, repository, position.head, uncommitted, changed, self._watched.store)
            if files != self.files:
                self._facts.set(FACT, to_fact(files))

    async def _adopt_after_kill(self, known: Known, repository: Repository, snapshot: FolderSnapshot) -> Known:
        """Attribute changes after the last sign of life of a killed turn, or of killed
        checks, to the user.
        """
        end = last_sign_of_life(self._run.session)
        allowed = known.allowed
        now = await position_of(repository)
        if now.head is None:
            return known
        tree = known.tree if known.seen is None else known.seen.tree
        before = FolderSnapshot(None, tree or snapshot.tree)  # older versions of Atomic did not record it
        paths = {*self.files.files, *await self._run.snapshots.changed_names(before, snapshot)}
        changed = await asyncio.to_thread(changed_after, repository.root, paths, end)
        if allowed.head is not None and allowed.head != now.head:
            last = await last_of_turn(repository, allowed, now, end)
            if last is not None:
                changed |= await repository.differing(last, now.head)
            if last == allowed.head:
                known = msgspec.structs.replace(known, allowed=now)
        await note_undone_tasks(self._run, before, snapshot, by_user=changed)
        if changed:
            old = with_deleted_versions(self.files, changed, self._watched.store, time.time())
            uncommitted = await self._run.snapshots.uncommitted_names(snapshot)
            files = await list_again(old, repository, now.head, uncommitted, changed, self._watched.store)
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
            return Try("git", GIT_DELETED, "the turn deleted the repository: .git is gone")
        now = await position_of(repository)
        if now.branch != known.allowed.branch or not await follows(repository, known.allowed, now):
            prompt = await prompt_to_return(repository, known.allowed, now)
            failed = Try("git", prompt, describe_move(known.allowed, now, by_turn=True))
        else:
            failed = await self._files_after_turn(known, now, repository, task)
        lost = await self._refs.end(repository, task, known.allowed.branch)
        if not lost:
            return failed
        text = prompt_to_restore_refs(lost)
        reason = "; ".join(one.said for one in lost[:3])
        if failed is not None:
            text = f"{failed.trouble}\n\n{text}"
            reason = f"{failed.reason}; {reason}"
        return Try("git", text, reason)

    async def _files_after_turn(self, known: Known, now: Position, repository: Repository, task: str) -> Try | None:
        if not self.files.files or known.allowed.head is None:
            self._note(msgspec.structs.replace(known, allowed=now))
            return None
        await self._watched.adopt_own_commits(known.allowed.head, str(now.head), repository)
        files = self.files
        troubles = await self._watched.find_troubles(known.allowed.head, repository, task)
        inner = {path for path, file in files.files.items() if file.submodule}
        published = {path for path, trouble in troubles.items() if trouble.kind == "committed"} - inner
        if not published:
            self._note(msgspec.structs.replace(known, allowed=now))
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
        kept = with_versions(self.files, own, self._watched.store, time.time())
        if kept.versions != files.versions:
            self._facts.set(FACT, to_fact(kept))
        text = prompt_to_restore_files(files, own, known.allowed.head, self._watched.store, self._run.make_notes())
        reasons = [describe(shown(path), trouble) for path, trouble in own.items()]
        reason = first_of(reasons, most=3, separator="; ")
        return Try("git", text, f"your uncommitted work was touched: {reason} (by the turn, or by you)")

    def _repository(self) -> Repository | None:
        """Return the repository.

        Raises Suspend if the run began in one that no longer exists.
        """
        found = find_repository(self._run.cwd)
        if found is None and self._known() is not None:
            self._suspend_without(f"The repository of {self._run.cwd} is gone: .git does not exist")
        return found

    def _suspend_without(self, why: str) -> NoReturn:
        raise Suspend(
            f"{why}. Restore the repository (from where it was moved, a clone or a backup), then"
            f" atomic resume {self._run.session.name}",
            code=REASON,
        )

    def _known(self) -> Known | None:
        found: Any = self._facts.get(POSITION)
        return None if found is None else read_known(found)

    def _note(self, known: Known) -> None:
        if known != self._known():
            self._facts.set(POSITION, to_fact(known))
