"""`atomic salvage ID [PATH...]`: put the user's uncommitted files back as they were before a run touched them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from time import localtime, strftime
from typing import Any

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.base.terminal import one_line
from atomic.cli.errors import CliError
from atomic.cli.resume import require_session
from atomic.cli.streams import confirmed, put
from atomic.git import GitError, Repository, find_repository
from atomic.graph.engine.errors import JournalError
from atomic.ralph.checkout import index_after_turn, is_staged_otherwise, is_turn_open
from atomic.ralph.users_files import (
    COPY_CHANGED,
    STORE,
    Entry,
    Store,
    UsersFile,
    UsersFiles,
    Version,
    content_of,
    other_versions,
    put_back,
    read_existing,
    read_users_files,
    shown,
    take_out,
)
from atomic.sessions.errors import FactsLostError
from atomic.sessions.facts import read_facts
from atomic.sessions.store import Session


def salvage_command(arguments: Arguments) -> int:
    """Put back what differs; 1 if something could not be put back."""
    id, *paths = arguments.words
    force = arguments.has("--force")
    session = require_session(id)
    if session.is_owned:
        raise CliError(f"{session.id} is running: atomic stop {session.id}, then salvage")
    facts = _facts(session)
    users, existing = read_users_files(facts), read_existing(facts)
    if existing.files and not users.files:  # the run began without a commit
        users = existing
    replaced = other_versions(users)
    wanted = _wanted(users, paths, replaced, touched=None if is_turn_open(facts) else users.troubles)
    if paths:
        replaced = {path: versions for path, versions in replaced.items() if path in wanted}
    if not wanted and not replaced and users is existing:
        put(
            "There was no commit when the run began, and none of the files that were there is missing. "
            f"atomic salvage {session.id} PATH puts back a file that was changed.\n"
        )
        return ExitCode.DONE
    if not wanted and not replaced:
        put("The run has left your uncommitted files as they were: there is nothing to put back.\n")
        return ExitCode.DONE
    root = Path(users.root)
    if not root.is_dir():
        raise CliError(f"{root} is not there: bring the folder back, then salvage")
    store = Store(session.dir, session.redactor)
    files = [_Salvage(root, path, file, store, users, force=force) for path, file in wanted.items() if file is not None]
    results = [file.run() for file in files]
    results += asyncio.run(_stage_again(root, files, facts))
    results += [_write_version(root, path, one, store) for path, versions in replaced.items() for one in versions]
    if all(result is None for result in results):
        names = "it is" if len(wanted) == 1 else "they are"
        put(f"Nothing to put back: {names} as you left {'it' if len(wanted) == 1 else 'them'}.\n")
    return ExitCode.DONE if all(result is not False for result in results) else ExitCode.FAILED


def _facts(session: Session) -> Mapping[str, Any]:
    if not session.journal_path.is_file():
        raise CliError(f"The journal of {session.id} is missing: put {session.journal_path} back, then salvage")
    try:
        return read_facts(session.journal_path, session.id)
    except FactsLostError as error:
        copies = session.dir / STORE
        raise CliError(
            f"Your files cannot be put back by name: {error}. The bytes that were kept of them are in {copies}"
        ) from error
    except JournalError as error:
        raise CliError(f"The journal of {session.id} cannot be read: {error}") from error


def _wanted(
    users: UsersFiles, paths: Sequence[str], replaced: Collection[str], *, touched: Collection[str] | None
) -> dict[str, UsersFile | None]:
    """Return the files that are meant: those that were named, else those that a turn of the run has touched.

    A file of `replaced` may be named too; None stands for one that is the project's by now.

    `touched` is None where a turn was cut off, and nobody knows what it touched. Raises UsageError for a file that was
    not the user's.
    """
    if not paths:
        return {path: file for path, file in users.files.items() if touched is None or path in touched}
    chosen: dict[str, UsersFile | None] = {}
    known = {*users.files, *replaced}
    for given in paths:
        inside = os.path.relpath(given, users.root or ".")
        path = inside if inside in known else given
        if path not in known:
            hint = did_you_mean(shown(path), map(shown, known))
            raise UsageError(f'"{shown(given)}" was not an uncommitted file of yours when the run began{hint}')
        chosen[path] = users.files.get(path)
    return chosen


class _Salvage:
    """One file."""

    def __init__(self, root: Path, path: str, file: UsersFile, store: Store, users: UsersFiles, *, force: bool) -> None:
        self._root, self._path, self._file, self._store, self._force = root, path, file, store, force
        self._place, self._trouble = root / path, users.troubles.get(path)
        self._name = one_line(shown(path))
        self._may_stage = True

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_staged(self) -> bool:
        return self._file.is_staged

    def run(self) -> bool | None:
        """True: it was put back; False: it could not be; None: it is as it was."""
        now = content_of(self._place)
        if now == self._file.content:
            return self._tell_of_commit()
        if why := self._obstacle():
            put(f"{self._name}: nothing was changed: {why}\n")
            self._may_stage = False
            return False
        if not self._may_replace(now):
            put(f"{self._name}: left as it is, because it has changed since the run (--force replaces it)\n")
            self._may_stage = False
            return False
        kept = ""
        try:
            kept = self._keep(now)
            put_back(self._place, self._file, self._store)
        except OSError as error:
            self._may_stage = False
            put(f"{self._name}: cannot be put back: {error.strerror}{kept}\n")
            return False
        put(f"{self._name}: put back{kept}\n")
        self._tell_of_commit()
        return True

    def _obstacle(self) -> str:
        """Return why the file cannot be put back, or nothing."""
        if self._file.not_kept:
            return f"there is no copy of it, because {self._file.not_kept}"
        if self._store.is_changed(self._file.content):
            return f"{COPY_CHANGED} during the run or since; look for the file in a backup or in your editor's history"
        if not self._store.can_give(self._file.content):
            return "its copy is gone, because the run has ended and had left the file alone"
        if not Path(os.path.realpath(self._place.parent)).is_relative_to(os.path.realpath(self._root)):
            return "its folder is now a link that leads out of the project; remove the link, then salvage"
        return ""

    def _tell_of_commit(self) -> bool | None:
        """Say how to take the file out of a commit that has it; None if none has."""
        trouble = self._trouble
        if trouble is None or trouble.kind != "committed":
            return None
        place = one_line(str(self._root))
        put(f"{self._name}: it is in commit {trouble.commit[:12]}. To take it out, run in {place}:\n")
        for command in take_out(self._path, self._file, trouble.commit):
            put(f"  {one_line(command)}\n")
        return True

    def _may_replace(self, now: str) -> bool:
        """Bytes that the run has not left are the user's newer ones: those need a word."""
        left_by_run = self._trouble is not None and self._trouble.content == now
        if left_by_run or now == "deleted" or self._force:
            return True
        return confirmed(f"{self._name} has changed since the run. Replace it? A copy is kept. [y/N] ")

    def _keep(self, now: str) -> str:
        """Keep what is replaced beside the file; what is said of it."""
        if now == "deleted":
            return ""
        aside = _free_name(self._place, "replaced")
        os.rename(self._place, aside)
        return f"; what was there is now {one_line(shown(aside.name))}"

    async def stage(self, repository: Repository, now: Entry | None, *, is_users: bool) -> bool | None:
        """Stage what was staged: True if done, False if it could not be, None if there is nothing to do.

        `now` is what the index has of the file; `is_users`: no turn of the run has left it.
        """
        file = self._file
        if not self._may_stage or not file.is_staged or now == file.staged:
            return None
        if is_users and not self._force:
            question = f"What is staged of {self._name} has changed since the run. Replace it? No copy is kept. [y/N] "
            if not confirmed(question):
                why = "because it has changed since the run (--force replaces it)"
                put(f"{self._name}: the index is left as it is, {why}\n")
                return False
        try:
            await _stage(repository, self._path, file, self._store)
        except (GitError, OSError) as error:
            put(f"{self._name}: what you had staged cannot be brought back: {one_line(str(error))}\n")
            return False
        put(f"{self._name}: {'staged' if file.staged is not None else 'its removal is staged'} again\n")
        return True


def _write_version(root: Path, path: str, version: Version, store: Store) -> bool | None:
    """Write bytes that were replaced during the run next to their file; None if a file there has them already."""
    name, time = one_line(shown(path)), strftime("%H:%M:%S", localtime(version.seen))
    if not Path(os.path.realpath((root / path).parent)).is_relative_to(os.path.realpath(root)):
        put(f"{name}: its version of {time} was not written: its folder is now a link that leads out of the project\n")
        return False
    aside = _free_name(root / path, "changed", version.content)
    if content_of(aside) == version.content:
        return None
    try:
        put_back(aside, UsersFile(version.content, version.mode), store)
    except OSError as error:
        put(f"{name}: its version of {time} cannot be written: {error.strerror}\n")
        return False
    put(f"{name}: replaced during the run; its version of {time} is now {one_line(shown(aside.name))}\n")
    return True


def _free_name(place: Path, word: str, content: str = "") -> Path:
    """Return the first name next to a file that no other file has, or that a file of this content has."""
    short = os.fsdecode(os.fsencode(place.name)[:240])  # a name has at most 255 bytes
    number = 1
    while os.path.lexists(aside := place.with_name(f"{short}.{word}-{number}")) and content_of(aside) != content:
        number += 1
    return aside


async def _stage_again(root: Path, files: Sequence[_Salvage], facts: Mapping[str, Any]) -> list[bool | None]:
    """Bring back what was staged, where the index has lost it. What the user has staged since needs a word."""
    repository = find_repository(root)
    if repository is None:
        return []
    commit, left = index_after_turn(facts)
    try:
        index = await repository.index([file.path for file in files if file.is_staged])
        commit = commit or (await repository.head())[0]
        staged = {} if commit is None else await repository.staged(commit)
    except GitError as error:
        put(f"What you had staged cannot be brought back: {one_line(str(error))}\n")
        return [False]
    return [
        await file.stage(repository, index.get(file.path), is_users=is_staged_otherwise(file.path, left, staged))
        for file in files
    ]


async def _stage(repository: Repository, path: str, file: UsersFile, store: Store) -> None:
    if file.staged is None:
        await repository.git("update-index", "--force-remove", "-z", "--stdin", input=f"{path}\0")
        return
    mode, name = file.staged
    if store.has(file.staged_content):
        text = store.read(file.staged_content).decode("utf-8", "surrogateescape")
        await repository.git("hash-object", "-w", "--stdin", input=text)
    if mode != "160000":  # the commit of a submodule is in another repository
        await repository.git("cat-file", "-e", name)
    await repository.git("update-index", "-z", "--index-info", input=f"{mode} {name}\t{path}\0")
