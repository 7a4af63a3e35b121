"""Keep snapshots of a folder and compare them, however its files were changed.

A snapshot is a tree of all files, committed or not, tracked or not. Files that git
ignored at the first snapshot are not in it (see `ignore_rules`). Snapshots are kept in
a git folder of our own; the user's index, refs and objects are not touched. That folder
has an index too, so a second snapshot reads only the files that have changed.

The content of a file with a secret is not kept, unless the user's own repository has it
already: one line with its hash replaces it. The same holds for a file that is too big,
with its size and time. `not_kept` returns such files.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec

from atomic.base.redaction import Redactor
from atomic.base.untrusted_files import open_regular, read_start
from atomic.git.calls import FileChangedError, GitError, read_again, split
from atomic.git.clean_files import clean_files
from atomic.git.folder_changes import check_file_count
from atomic.git.ignore_rules import FirstRules, IgnoreRules, RulesFile
from atomic.git.repository import Mark, Repository, find_repository, mark
from atomic.git.scratch import DIFF_TREE, MAX_FILE, DiffLine, Scratch, copy_index, write_git_folder

# More commits than that were fetched, not made; the newest are returned.
MAX_COMMITS = 1000
# Tags of `git ls-files -t` for unknown, changed and removed files.
_CHANGED = "?CR"
# The start and the maximal length of the line that replaces a file.
_NOT_KEPT = "Not kept here: "
_MAX_LINE = 200
# Pairs of trees whose difference is remembered.
_MAX_COMPARED = 64
_numbers = itertools.count()

ChangeStatus = Literal["added", "modified", "deleted"]
_STATUS: dict[str, ChangeStatus] = {"A": "added", "D": "deleted"}


class FolderSnapshot(msgspec.Struct, frozen=True):
    """The commit that was checked out (None: no commit) and the tree of all files."""

    head: str | None
    tree: str


class FileChange(msgspec.Struct, frozen=True):
    """A file that differs, with its path from the repository's root.

    Lines of binary files are not counted.
    """

    path: str
    status: ChangeStatus
    insertions: int = 0
    deletions: int = 0


class SnapshotStore:
    """The snapshots of a project, in a folder that only the user may read.

    Several stores may use the same folder. All methods raise GitError.
    """

    def __init__(
        self,
        store: Path,
        project: Path,
        *,
        ignored: Collection[Path] = (),
        has_secret: Callable[[bytes], bool] | None = None,
        first_rules: FirstRules | None = None,
    ) -> None:
        """Prepare a store; no file is written yet.

        `has_secret` decides which contents are not kept; by default, a `Redactor` of
        this process. `first_rules` keeps the first ignore rules; by default, a file of
        the store.
        """
        self._store = store.resolve()
        self._project = project.resolve()
        # The store is in a session's folder, which may be in the project, or contain
        # it.
        own = self._store if self._project.is_relative_to(self._store.parent) else self._store.parent
        self._hidden = [os.path.realpath(path) for path in (own, *ignored)]
        self._scratch: Scratch | None = None
        # The snapshot that is being taken, and the next one, which has not begun.
        self._current: asyncio.Task[FolderSnapshot] | None = None
        self._next: asyncio.Task[FolderSnapshot] | None = None
        # By the checksum of an index.
        self._trees: dict[bytes, str] = {}
        # By the names of two trees.
        self._compared: dict[tuple[str, str], tuple[DiffLine, ...]] = {}
        self._tracked: tuple[Mark, set[str]] = None, set()
        self._rules = IgnoreRules(self._store, first_rules or RulesFile(self._store))
        self._has_secret = has_secret or Redactor.of_environment().finds_in_file
        # By path: the file's status when it was searched, and whether it has a secret.
        self._searched: dict[str, tuple[tuple[int, int, int, int], bool]] = {}

    async def take(self) -> FolderSnapshot:
        """Take a snapshot.

        Calls during another snapshot all get the next one. If a file changes while it is
        read, all files are looked at again, a few times. Raises GitError, also for more
        than 10,000 files outside of a repository.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._take_after(self._current))
        return await asyncio.shield(self._next)

    async def _take_after(self, current: asyncio.Task[FolderSnapshot] | None) -> FolderSnapshot:
        if current is not None:
            await asyncio.wait([current])
        self._current = self._next
        self._next = None
        try:
            return await read_again(self._take_once)
        finally:
            self._current = None

    async def _take_once(self) -> FolderSnapshot:
        scratch = await self._open()
        head = None if scratch.repository is None else (await scratch.repository.head())[0]
        async with self._working_index(scratch) as index:
            return FolderSnapshot(head, await self._update_index(scratch, index))

    async def changes(self, before: FolderSnapshot, after: FolderSnapshot) -> list[FileChange]:
        """Return the files that differ, by path.

        A renamed file is deleted and added.
        """
        changes: list[FileChange] = []
        for line in await self._compare(before, after):
            counts = [int(count) if count.isdigit() else 0 for count in (line.insertions, line.deletions)]
            changes.append(FileChange(_printable(line.path), _STATUS.get(line.letter, "modified"), *counts))
        return changes

    async def changed_names(self, before: FolderSnapshot, after: FolderSnapshot) -> set[str]:
        """Return the paths of files that differ, with surrogates for other bytes than
        UTF-8.
        """
        return {line.path for line in await self._compare(before, after)}

    async def _compare(self, before: FolderSnapshot, after: FolderSnapshot) -> tuple[DiffLine, ...]:
        """Return the lines of a diff, without files that only their secret line
        replaced.
        """
        if before.tree == after.tree:
            return ()
        pair = before.tree, after.tree
        if pair not in self._compared:
            if len(self._compared) >= _MAX_COMPARED:
                self._compared.pop(next(iter(self._compared)))
            scratch = await self._opened()
            lines = await scratch.diff_lines(*pair)
            self._compared[pair] = tuple(sorted(line for line in lines if not _is_same_content(line.old, line.new)))
        return self._compared[pair]

    async def not_kept(self, snapshot: FolderSnapshot, paths: Sequence[str]) -> frozenset[str]:
        """Return the files whose content is not kept: too big, unreadable, or secret."""
        if not paths:
            return frozenset()
        scratch = await self._opened()
        listed = split(await scratch.git("ls-tree", "-r", "-z", "--long", snapshot.tree, "--", *paths))
        found: set[str] = set()
        for facts, path in (entry.split("\t", 1) for entry in listed):
            _, _, blob, size = facts.split()
            if size.isdigit() and int(size) <= _MAX_LINE:
                text = await scratch.git("cat-file", "blob", blob)
                if text.startswith(_NOT_KEPT):
                    found.add(_printable(path))
        return frozenset(found)

    async def names(self, snapshot: FolderSnapshot) -> list[str]:
        """Return the paths of all files, with surrogates for other bytes than UTF-8."""
        return split(await (await self._opened()).git("ls-tree", "-r", "-z", "--name-only", snapshot.tree))

    async def uncommitted(self, snapshot: FolderSnapshot) -> frozenset[str]:
        """Return the files that differ from the snapshot's commit.

        None without a commit.
        """
        return frozenset(_printable(path) for path in await self.uncommitted_names(snapshot))

    async def uncommitted_names(self, snapshot: FolderSnapshot) -> frozenset[str]:
        """Return the same as `uncommitted`, with surrogates for other bytes than UTF-8.

        A file that git stores in other bytes, with other line ends or through a filter,
        differs only if git reports it.
        """
        if snapshot.head is None:
            return frozenset()
        # Git accepts a commit where it expects a tree.
        committed = FolderSnapshot(snapshot.head, snapshot.head)
        letters = {line.path: line.letter for line in await self._compare(committed, snapshot)}
        modified = [path for path, letter in letters.items() if letter == "M"]
        repository = (await self._opened()).repository
        if not modified or repository is None:
            return frozenset(letters)
        return frozenset(letters.keys() - await clean_files(repository, snapshot.head, modified))

    async def patch(self, before: FolderSnapshot, after: FolderSnapshot, *, max_bytes: int) -> tuple[str, bool]:
        """Return the difference as a patch to read, and whether it was cut after a
        line.
        """
        if before.tree == after.tree:
            return "", False
        scratch = await self._opened()
        with self._temporary("patch") as file:
            await scratch.git(*DIFF_TREE, "-p", f"--output={file}", before.tree, after.tree)
            data = await asyncio.to_thread(read_start, file, max_bytes + 1)
        # The replacement of a byte that is not UTF-8 is longer than the byte.
        text = data.decode("utf-8", "replace").encode()
        if len(text) <= max_bytes:
            return text.decode(), False
        return text[: text.rfind(b"\n", 0, max_bytes) + 1].decode(), True

    async def commits(self, before: FolderSnapshot, after: FolderSnapshot) -> list[tuple[str, str]]:
        """Return hash and subject of commits in `after` and not in `before`, oldest
        first.
        """
        if after.head is None or after.head == before.head:
            return []
        since = () if before.head is None else (f"^{before.head}",)
        words = ("log", "-z", "--reverse", "--topo-order", f"--max-count={MAX_COMMITS}", "--format=%H %s")
        listed = await (await self._opened()).git(*words, "--end-of-options", after.head, *since)
        commits: list[tuple[str, str]] = []
        for line in listed.split("\0"):
            name, _, subject = line.partition(" ")
            if name:
                commits.append((name, _printable(subject)))
        return commits

    async def _opened(self) -> Scratch:
        return self._scratch or await self._open()

    async def _open(self) -> Scratch:
        """Open the store with the repository's current settings.

        An agent may have made a repository, or changed its settings.
        """
        if not self._project.is_dir():
            raise GitError(("status",), f"the folder no longer exists: {self._project}")
        repository = find_repository(self._project)
        if repository is None:
            await asyncio.to_thread(check_file_count, self._project)
        root = self._project if repository is None else repository.root
        settings = {} if repository is None else await repository.settings()
        await asyncio.to_thread(_prepare_store, self._store, repository, settings, is_first=self._scratch is None)
        self._scratch = Scratch(self._store, root, repository)
        return self._scratch

    async def _update_index(self, scratch: Scratch, index: str) -> str:
        """Bring the index up to date and return its tree."""
        tracked = await self._tracked_files(scratch)
        known, changed = await self._list_files(scratch, index, tracked)
        new = sorted(tracked - known)
        # A repository that has become a submodule is one entry and replaces its files.
        submodules = tuple(f"{path}/" for path in new if (scratch.root / path).is_dir())
        await _update_paths(
            scratch, index, "--force-remove", paths=[path for path in known if path.startswith(submodules)]
        )
        sizes = {path: _find_size(scratch.root, path) for path in self._without_own([*changed, *new], scratch.root)}
        missing = [path for path, size in sizes.items() if size is None]
        small = [path for path, size in sizes.items() if size is not None and 0 <= size <= MAX_FILE]
        secret = await self._with_secrets(scratch, small)
        plain = [path for path in small if path not in secret]
        await _update_paths(scratch, index, "--force-remove", paths=missing)
        # With --remove, because a file may be gone by now.
        await _update_paths(scratch, index, "--add", "--remove", "--replace", paths=plain)
        for path in sizes.keys() - {*missing, *plain, *secret}:
            with suppress(FileNotFoundError):
                status = (scratch.root / path).lstat()
                line = f"{_NOT_KEPT}{status.st_size} bytes, last changed at {status.st_mtime_ns} ns.\n"
                await _put_line(scratch, index, path, line)
        for path, content in secret.items():
            await _put_line(scratch, index, path, _line_for(content))
        if {*known, *sizes} - tracked:
            # Remove files that are ignored now, unless the user's index has it.
            exclude = await self._rules.option(scratch, index)
            ignored = split(await scratch.git("ls-files", "-z", "-c", "-i", exclude, index=index))
            untracked = [path for path in ignored if path not in tracked]
            await _update_paths(scratch, index, "--force-remove", paths=untracked)
        return await self._tree_of(scratch, index)

    async def _with_secrets(self, scratch: Scratch, paths: Sequence[str]) -> dict[str, str]:
        """Return the files with a secret that the user's repository lacks, with hashes."""
        if not paths:
            return {}
        suspects = await asyncio.to_thread(lambda: [path for path in paths if self._is_suspect(scratch.root / path)])
        hashes: dict[str, str] = {}
        for path in suspects:
            try:
                content = (await scratch.git("hash-object", "--", path)).strip()
            except FileChangedError:
                raise
            except GitError:
                # The file is gone by now.
                continue
            if not await _has_object(scratch, content):
                hashes[path] = content
        return hashes

    def _is_suspect(self, path: Path) -> bool:
        """Return whether a file has a secret.

        A file is read again only if it changed.
        """
        try:
            file = open_regular(path, follow_links=False)
        except OSError:
            # A link or another repository, which have no content, or a file that is
            # gone.
            return False
        with file:
            status = os.fstat(file.fileno())
            stamp = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            known = self._searched.get(str(path))
            if known is None or known[0] != stamp:
                known = stamp, self._has_secret(file.read(MAX_FILE))
                self._searched[str(path)] = known
            return known[1]

    async def _tree_of(self, scratch: Scratch, index: str) -> str:
        """Return the tree of an index; git is called only if the index has changed."""
        file = self._store / index
        before = _checksum_of(file)
        if before in self._trees:
            return self._trees[before]
        tree = (await scratch.git("write-tree", "--missing-ok", index=index)).strip()
        # Git notes in the index which trees it has written, which changes the checksum.
        self._trees = {before: tree, _checksum_of(file): tree}
        return tree

    async def _tracked_files(self, scratch: Scratch) -> set[str]:
        """Return the files in the user's index, ignored or not."""
        if scratch.repository is None:
            return set()
        now = mark(scratch.repository.git_dir / "index")
        if now is None or now != self._tracked[0]:
            self._tracked = now, set(split(await scratch.repository.git("ls-files", "-z")))
        return self._tracked[1]

    async def _list_files(self, scratch: Scratch, index: str, tracked: set[str]) -> tuple[set[str], list[str]]:
        """Return the files in the index, and the files that differ from it."""
        known: set[str] = set()
        changed: dict[str, None] = {}
        for line in await self._rules.list_files(scratch, index, "-c", "-o", "-m", "-d"):
            tag = line[0]
            path = line[2:]
            if tag in _CHANGED:
                changed[path] = None
            else:
                known.add(path)
        repositories = [path for path in changed if path.endswith("/") and path.rstrip("/") not in tracked]
        return known, [*changed, *await _inner_files(scratch, repositories)]

    def _without_own(self, paths: Iterable[str], root: Path) -> list[str]:
        """Return the paths without Atomic's own files and without folders."""
        own = tuple(f"{os.path.relpath(path, root)}/" for path in self._hidden if Path(path).is_relative_to(root))
        return [path for path in paths if not path.endswith("/") and not path.startswith(own)]

    @asynccontextmanager
    async def _working_index(self, scratch: Scratch) -> AsyncGenerator[str]:
        """Make a copy of the index that replaces it at the end.

        So a process that is killed leaves no lock.
        """
        with self._temporary("index") as copy:
            if (self._store / "index").exists():
                # With its time: git compares it with the times of files written just
                # before.
                shutil.copy2(self._store / "index", copy)
            elif scratch.repository is not None:
                copy_index(scratch.repository, self._store, name=copy.name)
                await _clear_flags(scratch, copy.name)
            yield copy.name
            if copy.exists():
                copy.replace(self._store / "index")

    @contextmanager
    def _temporary(self, kind: str) -> Generator[Path]:
        path = self._store / f"tmp-{os.getpid()}-{next(_numbers)}-{kind}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Path, Path], SnapshotStore]] = WeakKeyDictionary()


def shared_snapshot_store(
    store: Path,
    project: Path,
    *,
    ignored: Collection[Path] = (),
    has_secret: Callable[[bytes], bool] | None = None,
    first_rules: FirstRules | None = None,
) -> SnapshotStore:
    """Return the one store of a project in this event loop, so that callers share its
    cache.
    """
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    if (store, project) not in known:
        known[store, project] = SnapshotStore(
            store, project, ignored=ignored, has_secret=has_secret, first_rules=first_rules
        )
    return known[store, project]


def _prepare_store(store: Path, repository: Repository | None, settings: dict[str, str], *, is_first: bool) -> None:
    """Make the store, or bring it up to date without its index.

    `is_first`: remove temporary files of other processes. They were killed, because a
    session has one process at a time.
    """
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_git_folder(store, repository, settings)
    if is_first:
        for path in store.glob("tmp-*"):
            if not path.name.startswith(f"tmp-{os.getpid()}-"):
                path.unlink(missing_ok=True)


def _checksum_of(index: Path) -> bytes:
    """Return the checksum at the end of an index; b"" if there is no index."""
    try:
        with index.open("rb") as file:
            file.seek(-20, os.SEEK_END)
            return file.read()
    except FileNotFoundError:
        return b""


async def _clear_flags(scratch: Scratch, index: str) -> None:
    """Clear flags of the user's index that make git skip files ("assume unchanged")."""
    listed = [(line[0], line[2:]) for line in split(await scratch.git("ls-files", "-z", "-v", index=index))]
    assumed = [path for tag, path in listed if tag.islower()]
    skipped = [path for tag, path in listed if tag in "sS" and _find_size(scratch.root, path) is not None]
    await _update_paths(scratch, index, "--no-assume-unchanged", paths=assumed)
    await _update_paths(scratch, index, "--no-skip-worktree", paths=skipped)


async def _inner_files(scratch: Scratch, folders: Iterable[str]) -> list[str]:
    """Return the files of other repositories in the folder, which git does not list."""
    files: list[str] = []
    waiting = [*folders]
    while waiting:
        folder = waiting.pop()
        words = ("ls-files", "-z", "-o", "--exclude-standard")
        listed = await scratch.git(*words, index="none", root=scratch.root / folder)
        found = [f"{folder}{path}" for path in split(listed)]
        waiting += (path for path in found if path.endswith("/"))
        files += (path for path in found if not path.endswith("/"))
    return files


async def _update_paths(scratch: Scratch, index: str, *words: str, paths: Sequence[str]) -> None:
    if paths:
        text = "".join(f"{path}\0" for path in paths)
        await scratch.git("update-index", "-z", *words, "--stdin", index=index, input=text)


async def _put_line(scratch: Scratch, index: str, path: str, line: str) -> None:
    """Put a line into the index in place of a file."""
    blob = (await scratch.git("hash-object", "-w", "--stdin", input=line)).strip()
    await scratch.git("update-index", "-z", "--index-info", index=index, input=f"100644 {blob}\t{path}\0")


async def _has_object(scratch: Scratch, name: str) -> bool:
    try:
        await scratch.git("cat-file", "-e", name)
    except GitError:
        return False
    return True


def _line_for(content: str) -> str:
    """Return the line that replaces a file with a secret; `content` is its hash."""
    return f"{_NOT_KEPT}it has a secret in it. Its hash is {content}.\n"


def _is_same_content(old: str, new: str) -> bool:
    """Return whether one of two blobs is the line that replaces the other."""
    return old == _hash_of_line_for(new) or new == _hash_of_line_for(old)


def _hash_of_line_for(content: str) -> str:
    line = _line_for(content).encode()
    algorithm = hashlib.sha1 if len(content) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(line) + line, usedforsecurity=False).hexdigest()


def _find_size(root: Path, path: str) -> int | None:
    """Return the size of a file, or -1 if it cannot be read.

    None: there is no file, or something that git cannot keep.
    """
    file = root / path
    try:
        status = file.lstat()
    except OSError:
        return None
    if os.path.realpath(file.parent) != str(file.parent):
        # A folder in its path is a link, and the link itself is the file.
        return None
    if stat.S_ISREG(status.st_mode):
        return status.st_size if os.access(file, os.R_OK) else -1
    is_repository = stat.S_ISDIR(status.st_mode) and (file / ".git").exists()
    return 0 if stat.S_ISLNK(status.st_mode) or is_repository else None


def _printable(text: str) -> str:
    """Return text that JSON can carry, with escapes for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
