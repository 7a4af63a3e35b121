"""`atomic salvage ID`: restore work that a run has set aside.

Of a run with a branch these are parked workspaces (`parked.py`). Of a run in the user's
checkout these are the user's uncommitted files as they were before the run.
"""

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
from atomic.cli.parked import park_left, restore_parked, show_parked
from atomic.cli.resume import require_session
from atomic.cli.run_branches import RunWork, work_of
from atomic.cli.streams import confirmed, put
from atomic.git import GitError, Repository, find_repository
from atomic.graph.engine.errors import JournalError
from atomic.ralph import users_files
from atomic.ralph.file_copies import COPY_CHANGED, STORE, Store, content_of
from atomic.ralph.file_names import shown
from atomic.ralph.position import index_after_turn, is_staged_otherwise, is_turn_open
from atomic.ralph.users_files import Entry, UsersFile, UsersFiles, Version
from atomic.sessions.errors import FactsLostError
from atomic.sessions.facts import read_facts
from atomic.sessions.store import Session
from atomic.workspaces.run_branch import read_branch


def salvage_command(arguments: Arguments) -> int:
    """Restore what the arguments name. Return 1 if a file could not be restored."""
    id, *words = arguments.words
    session = require_session(id)
    if session.is_owned:
        raise CliError(f"{session.id} is running: atomic stop {session.id}, then salvage")
    facts = _read_facts(session)
    branch = read_branch(facts)
    if branch is not None:
        return _salvage_parked(work_of(session, branch), words, arguments)
    for flag in ("--to", "--json"):
        if arguments.has(flag):
            raise UsageError(f"{flag} is for runs with a branch, and {session.id} worked in your checkout itself")
    return _restore_users_files(session, facts, words, force=arguments.has("--force"))


def _salvage_parked(work: RunWork, words: Sequence[str], arguments: Arguments) -> int:
    """List the parked workspaces of a run, or restore one of them."""
    if arguments.has("--force"):
        raise UsageError(f"--force is not for run {work.id}: it has a branch, and has not changed your files")
    to = arguments.value("--to")
    park_left(work)
    if not words:
        if to is not None:
            raise UsageError(f"--to needs a TASK: atomic salvage {work.short} lists what is parked")
        asyncio.run(show_parked(work, as_json=arguments.has("--json")))
        return ExitCode.DONE
    if len(words) > 1:
        raise UsageError(f'atomic salvage restores one TASK[/ATTEMPT] at a time: leave out "{words[1]}"')
    if arguments.has("--json"):
        raise UsageError("--json only lists what is parked: leave out the TASK")
    asyncio.run(restore_parked(work, words[0], to))
    return ExitCode.DONE


def _restore_users_files(session: Session, facts: Mapping[str, Any], paths: Sequence[str], *, force: bool) -> int:
    """Restore the user's files that differ. Return 1 if one could not be restored."""
    users = users_files.read_users_files(facts)
    existing = users_files.read_existing(facts)
    if existing.files and not users.files:  # the run began without a commit
        users = existing
    versions = users_files.other_versions(users)
    wanted = _choose_files(users, paths, versions, touched=None if is_turn_open(facts) else users.troubles)
    if paths:
        versions = {path: found for path, found in versions.items() if path in wanted}
    if not wanted and not versions:
        if users is existing:
            put(
                "There was no commit when the run began, and none of the files that existed then is missing. "
                f"atomic salvage {session.id} PATH restores a file that was changed.\n"
            )
        else:
            put("The run has left your uncommitted files as they were: there is nothing to put back.\n")
        return ExitCode.DONE
    root = Path(users.root)
    if not root.is_dir():
        raise CliError(f"{root} does not exist: restore the folder, then salvage")
    store = Store(session.dir, session.redactor)
    files: list[_Salvage] = []
    for path, file in wanted.items():
        if file is not None:
            files.append(_Salvage(root, path, file, store, users, force=force))
    results = [file.run() for file in files]
    results += asyncio.run(_restore_index(root, files, facts))
    for path, found in versions.items():
        results += [_write_version(root, path, version, store) for version in found]
    if all(result is None for result in results):
        is_one = len(wanted) == 1
        put(f"Nothing to put back: {'it is as you left it' if is_one else 'they are as you left them'}.\n")
    return ExitCode.FAILED if False in results else ExitCode.DONE


def _read_facts(session: Session) -> Mapping[str, Any]:
    if not session.journal_path.is_file():
        raise CliError(f"The journal of {session.id} is missing: put {session.journal_path} back, then salvage")
    try:
        return read_facts(session.journal_path, session.id)
    except FactsLostError as error:
        copies = session.dir / STORE
        raise CliError(
            f"Your files cannot be restored by name: {error}. Their saved contents are in {copies}"
        ) from error
    except JournalError as error:
        raise CliError(f"The journal of {session.id} cannot be read: {error}") from error


def _choose_files(
    users: UsersFiles, paths: Sequence[str], versions: Collection[str], *, touched: Collection[str] | None
) -> dict[str, UsersFile | None]:
    """Return the named files, by default all files that the run has touched.

    None is the value of a file that is now the project's own; it can be named if it has
    other `versions`. `touched` is None if a turn was cut off, so that every file may be
    touched. Raise UsageError for a path that was not an uncommitted file of the user.
    """
    if not paths:
        return {path: file for path, file in users.files.items() if touched is None or path in touched}
    chosen: dict[str, UsersFile | None] = {}
    known = {*users.files, *versions}
    for given in paths:
        inside = os.path.relpath(given, users.root or ".")
        path = inside if inside in known else given
        if path not in known:
            hint = did_you_mean(shown(path), map(shown, known))
            raise UsageError(f'"{shown(given)}" was not an uncommitted file of yours when the run began{hint}')
        chosen[path] = users.files.get(path)
    return chosen


class _Salvage:
    """Restores one file."""

    def __init__(self, root: Path, path: str, file: UsersFile, store: Store, users: UsersFiles, *, force: bool) -> None:
        self.path = path
        self.file = file
        self._root = root
        self._target = root / path
        self._store = store
        self._trouble = users.troubles.get(path)
        self._force = force
        self._name = one_line(shown(path))
        self._may_stage = True

    def run(self) -> bool | None:
        """Restore the file.

        Return True if it was restored, False if not, None if it is unchanged.
        """
        now = content_of(self._target)
        if now == self.file.content:
            return self._report_commit()
        obstacle = self._obstacle()
        if obstacle:
            return self._fail(f"nothing was changed: {obstacle}")
        # Content that the run did not leave is newer work of the user.
        is_from_run = self._trouble is not None and self._trouble.content == now
        if not (is_from_run or now == "deleted" or self._force) and not confirmed(
            f"{self._name} has changed since the run. Replace it? A copy is kept. [y/N] "
        ):
            return self._fail("left as it is, because it has changed since the run (--force replaces it)")
        kept = ""
        try:
            if now != "deleted":
                copy = _free_name(self._target, "replaced")
                os.rename(self._target, copy)
                kept = f"; what was there is now {one_line(shown(copy.name))}"
            users_files.put_back(self._target, self.file, self._store)
        except OSError as error:
            return self._fail(f"cannot be put back: {error.strerror}{kept}")
        put(f"{self._name}: put back{kept}\n")
        self._report_commit()
        return True

    def _fail(self, why: str) -> bool:
        put(f"{self._name}: {why}\n")
        self._may_stage = False
        return False

    def _obstacle(self) -> str:
        """Return why the file cannot be restored; empty if it can."""
        if self.file.not_kept:
            return f"there is no copy of it, because {self.file.not_kept}"
        if self._store.is_changed(self.file.content):
            where = "look for the file in a backup or in your editor's history"
            return f"{COPY_CHANGED} during the run or since; {where}"
        if not self._store.can_give(self.file.content):
            return "its copy is gone, because the run has ended without a change to the file"
        if not _is_inside(self._root, self._target):
            return "its folder is now a link that leads out of the project; remove the link, then salvage"
        return ""

    def _report_commit(self) -> bool | None:
        """Print how to remove the file from a commit that contains it.

        Return None if none does.
        """
        trouble = self._trouble
        if trouble is None or trouble.kind != "committed":
            return None
        root = one_line(str(self._root))
        put(f"{self._name}: it is in commit {trouble.commit[:12]}. To take it out, run in {root}:\n")
        for command in users_files.take_out(self.path, self.file, trouble.commit):
            put(f"  {one_line(command)}\n")
        return True

    async def stage(self, repository: Repository, now: Entry | None, *, is_users: bool) -> bool | None:
        """Stage the file as it was staged.

        Return True if done, False if not, None if nothing is to do.

        `now` is its current entry in the index; `is_users` if no turn of the run has
        left that.
        """
        file = self.file
        if not self._may_stage or not file.is_staged or now == file.staged:
            return None
        if is_users and not self._force:
            question = f"What is staged of {self._name} has changed since the run. Replace it? No copy is kept. [y/N] "
            if not confirmed(question):
                why = "because it has changed since the run (--force replaces it)"
                put(f"{self._name}: the index is left as it is, {why}\n")
                return False
        try:
            await _stage(repository, self.path, file, self._store)
        except (GitError, OSError) as error:
            put(f"{self._name}: what you had staged cannot be brought back: {one_line(str(error))}\n")
            return False
        put(f"{self._name}: {'staged' if file.staged is not None else 'its removal is staged'} again\n")
        return True


def _write_version(root: Path, path: str, version: Version, store: Store) -> bool | None:
    """Write content that was replaced during the run next to its file.

    None if a file there has it.
    """
    name = one_line(shown(path))
    time = strftime("%H:%M:%S", localtime(version.seen))
    if not _is_inside(root, root / path):
        put(f"{name}: its version of {time} was not written: its folder is now a link that leads out of the project\n")
        return False
    copy = _free_name(root / path, "changed", version.content)
    if content_of(copy) == version.content:
        return None
    try:
        users_files.put_back(copy, UsersFile(version.content, version.mode), store)
    except OSError as error:
        put(f"{name}: its version of {time} cannot be written: {error.strerror}\n")
        return False
    put(f"{name}: replaced during the run; its version of {time} is now {one_line(shown(copy.name))}\n")
    return True


def _is_inside(root: Path, path: Path) -> bool:
    """Return whether the folder of a path, with links resolved, is below the root."""
    return Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(root))


def _free_name(path: Path, suffix: str, content: str = "") -> Path:
    """Return the first numbered name next to a file that is free or already has this
    content.
    """
    short = os.fsdecode(os.fsencode(path.name)[:240])  # a name has at most 255 bytes
    number = 1
    while True:
        copy = path.with_name(f"{short}.{suffix}-{number}")
        if not os.path.lexists(copy) or content_of(copy) == content:
            return copy
        number += 1


async def _restore_index(root: Path, files: Sequence[_Salvage], facts: Mapping[str, Any]) -> list[bool | None]:
    """Restore entries that the index has lost.

    Later changes of the user need a confirmation.
    """
    repository = find_repository(root)
    if repository is None:
        return []
    commit, left = index_after_turn(facts)
    try:
        index = await repository.index([file.path for file in files if file.file.is_staged])
        commit = commit or (await repository.head())[0]
        staged = {} if commit is None else await repository.staged(commit)
    except GitError as error:
        put(f"What you had staged cannot be brought back: {one_line(str(error))}\n")
        return [False]
    results: list[bool | None] = []
    for file in files:
        is_users = is_staged_otherwise(file.path, left, staged)
        results.append(await file.stage(repository, index.get(file.path), is_users=is_users))
    return results


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
