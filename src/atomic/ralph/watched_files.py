"""The user's uncommitted files during a run: a fact, and the copies that are kept."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from atomic.git import FolderSnapshot, Repository
from atomic.ralph.file_copies import Store, content_of
from atomic.ralph.file_names import named, to_fact
from atomic.ralph.position import Position
from atomic.ralph.run_folder import RunFolder
from atomic.ralph.users_files import (
    CHECKS,
    EXISTING,
    FACT,
    Entry,
    Trouble,
    UsersFiles,
    Version,
    list_again,
    list_existing,
    own_commits,
    read_users_files,
    troubles_of,
)


class WatchedFiles:
    """Reads and updates the record of the user's files."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._facts = run.facts
        self.store = Store(run.session, run.redactor)

    @property
    def known(self) -> UsersFiles:
        return read_users_files(self._facts)

    async def keep_existing(self, root: Path, now: FolderSnapshot, commands: str) -> None:
        """Keep copies of the files that exist before the first turn of a run without a
        commit.
        """
        if self._facts.get(EXISTING) is not None:
            return
        files = await asyncio.to_thread(list_existing, root, await self._run.snapshots.names(now), self.store)
        self._facts.set(EXISTING, to_fact(files))
        if not files.files:
            return
        lost = [path for path, file in files.files.items() if file.not_kept]
        limits = f" No copy is kept of {named(lost, most=3)}: {files.files[lost[0]].not_kept}." if lost else ""
        if files.unlisted:
            limits += f" Only the first {len(files.files):,} files are watched."
        self._run.say(
            "This folder has no commit: agents may change and delete every file in it, and git cannot bring one back. "
            f"To be safe, run {commands} first. After the run, atomic salvage {self._run.session.name} PATH puts a "
            f"file back.{limits}"
        )

    async def staged(self, repository: Repository, position: Position) -> dict[str, Entry | None]:
        """Return the staged changes of the files."""
        files = self.known.files
        if position.head is None or not files:
            return {}
        staged = await repository.staged(position.head)
        return {path: entry for path, entry in staged.items() if path in files}

    def inner(self, repository: Repository) -> list[tuple[str, str]]:
        """Return the files in submodules, and their contents."""
        inner = [path for path, file in self.known.files.items() if file.submodule]
        return [(path, content_of(repository.root / path)) for path in inner]

    async def adopt_own_commits(self, since: str, head: str, repository: Repository) -> None:
        """Attribute files to the project that the user has probably committed during
        the turn; the report lists them.

        The earlier content of such a file is kept if the commit has changed it.
        """
        files = self.known
        own = await own_commits(files, repository, since, head)
        if not own:
            return
        versions = dict(files.versions)
        for path, file in files.files.items():
            if path in own and self.store.has(file.content) and content_of(repository.root / path) != file.content:
                versions[path] = [*versions.get(path, []), Version(file.content, file.mode, time.time())]
        others = {path: trouble for path, trouble in files.troubles.items() if path not in own}
        uncommitted = await self._run.snapshots.uncommitted_names(await self._run.snapshots.take())
        again = await list_again(
            msgspec.structs.replace(files, troubles=others), repository, head, uncommitted, own, self.store
        )
        committed = {**files.committed, **own}
        self._facts.set(FACT, to_fact(msgspec.structs.replace(again, committed=committed, versions=versions)))

    async def find_troubles(self, since: str, repository: Repository, task: str) -> dict[str, Trouble]:
        """Record unwanted changes of the user's files, and keep their current content."""
        files = self.known
        troubles = await troubles_of(files, repository, since, task)
        for path, trouble in troubles.items():
            # The user may have written it just now. Content that checks write
            # repeatedly is kept once.
            if trouble.task != CHECKS or path not in files.troubles:
                self.store.keep(repository.root / path, trouble.content)
        if troubles != files.troubles:
            self._facts.set(FACT, to_fact(msgspec.structs.replace(files, troubles=troubles)))
        return troubles
