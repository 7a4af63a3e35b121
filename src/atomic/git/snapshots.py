"""SnapshotStore of a working folder that are kept: what differs between two of them, however it came about.

A picture is a tree of all files, committed or not, tracked or not, but for those that git ignored when the first one
was taken: whoever changes the rules later hides nothing (but see `ignore_rules.OUTPUT_FOLDERS`). It is kept in a
git folder of our own, outside the user's repository, whose index, refs and objects are not touched. That folder has an
index too, so that a second picture reads only the files that have changed.

Of a file with a secret in it only the hash is kept, in a line that stands in for it, unless the user's own repository
has the content already. So is a file that is too big. `not_kept` tells which files of a picture these are.
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
from typing import Literal, Protocol
from weakref import WeakKeyDictionary

import msgspec

from atomic.base.redaction import Redactor
from atomic.git import ignore_rules
from atomic.git.clean_files import clean_files
from atomic.git.errors import GitError
from atomic.git.folder_changes import count_files
from atomic.git.repository import Mark, Repository, find_repository, mark
from atomic.git.scratch import MAX_FILE, Scratch, copy_index, furnish, put_file, split

MAX_COMMITS = 1000  # more than that were not made but fetched: the newest are told
_TREES = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "-O/dev/null")
_CHANGED = "?CR"  # how git marks a file that is unknown, changed or removed
_NOT_KEPT = "Not kept here: "  # how the line begins that stands in for a file
_LONGEST_LINE = 200  # bytes of such a line
_MOST_COMPARED = 64  # pairs of trees whose difference is remembered
_numbers = itertools.count()

_Stamp = tuple[int, int, int, int]  # times, size and number of a file: as they were when it was read
_Facts = tuple[str, str, str, str]  # of a file that differs: path, kind of change, insertions, deletions
ChangeStatus = Literal["added", "modified", "deleted"]
_STATUS: dict[str, ChangeStatus] = {"A": "added", "D": "deleted"}


class FolderSnapshot(msgspec.Struct, frozen=True):
    """What was there: the commit that was checked out (None: there is none) and the tree of all files."""

    head: str | None
    tree: str


class FileChange(msgspec.Struct, frozen=True):
    """A file that differs. Its path begins at the root of the repository; lines of bytes are not counted."""

    path: str
    status: ChangeStatus
    insertions: int = 0
    deletions: int = 0


class FirstRules(Protocol):
    """Where the ignore rules of the first picture are kept."""

    def read(self) -> bytes | None: ...

    def write(self, rules: bytes) -> None: ...


class _RulesFile:
    """Keeps the rules in a file of the store."""

    def __init__(self, store: Path) -> None:
        self._file = store / "first-rules"

    def read(self) -> bytes | None:
        return self._file.read_bytes() if self._file.is_file() else None

    def write(self, rules: bytes) -> None:
        put_file(self._file, rules)


class SnapshotStore:
    """The pictures of a project, kept in a folder that only the user may read.

    Whoever makes several on the same folder shares what they keep. All raise GitError.
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
        """`has_secret`: whether a file's content must not be kept; None: what a `Redactor` of this process finds.

        `first_rules`: where the first ignore rules are kept; None: in a file of the store.
        """
        self._store, self._project = store.resolve(), project.resolve()
        self._hidden = [os.path.realpath(path) for path in (self._own_folder(), *ignored)]
        self._scratch: Scratch | None = None
        self._current: asyncio.Task[FolderSnapshot] | None = None  # is being taken
        self._next: asyncio.Task[FolderSnapshot] | None = None  # has been asked for, and is not begun
        self._trees: dict[bytes, str] = {}  # by the checksum of an index
        self._compared: dict[tuple[str, str], tuple[_Facts, ...]] = {}  # by the hashes of two trees
        self._tracked: tuple[Mark, set[str]] = None, set()
        self._rules: list[str] | None = None  # what git ignored when the first picture was taken
        self._first = first_rules or _RulesFile(self._store)
        self._rule_files: set[str] = set()  # where `.gitignore` files were seen
        self._has_secret = has_secret or Redactor.of_environment().finds_in_file
        self._searched: dict[str, tuple[_Stamp, bool]] = {}  # by path: the file as it was, and whether it has a secret

    async def take(self) -> FolderSnapshot:
        """A picture of what is there now. Outside of a repository it raises GitError if there are over 10,000 files.

        Those who ask while another picture is being taken all get the next one.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._take_after(self._current))
        return await asyncio.shield(self._next)

    async def _take_after(self, current: asyncio.Task[FolderSnapshot] | None) -> FolderSnapshot:
        if current is not None:
            await asyncio.wait([current])
        self._current, self._next = self._next, None
        try:
            scratch = await self._open()
            head = None if scratch.repository is None else (await scratch.repository.head())[0]
            async with self._working_index(scratch) as index:
                return FolderSnapshot(head, await self._look(scratch, index))
        finally:
            self._current = None

    async def changes(self, before: FolderSnapshot, after: FolderSnapshot) -> list[FileChange]:
        """The files that differ, by their paths; one that was renamed is deleted and added."""
        return [_file_change(*facts) for facts in await self._differing(before, after)]

    async def changed_names(self, before: FolderSnapshot, after: FolderSnapshot) -> set[str]:
        """Return the paths of files that differ, as the file system has them: other bytes than text are surrogates."""
        return {facts[0] for facts in await self._differing(before, after)}

    async def _differing(self, before: FolderSnapshot, after: FolderSnapshot) -> tuple[_Facts, ...]:
        """Return the facts of each file that differs. Git is asked once: a tree never changes."""
        if before.tree == after.tree:
            return ()
        pair = before.tree, after.tree
        if pair not in self._compared:
            if len(self._compared) >= _MOST_COMPARED:
                self._compared.pop(next(iter(self._compared)))
            self._compared[pair] = await self._compare(*pair)
        return self._compared[pair]

    async def _compare(self, before: str, after: str) -> tuple[_Facts, ...]:
        scratch = await self._opened()
        words = split(await scratch.git(*_TREES, "-z", "--raw", "--numstat", before, after))
        # First two words for each file, the facts and the path, then one for each, the numbers and the path.
        count = next((at for at in range(0, len(words), 2) if not words[at].startswith(":")), len(words))
        lines = {path: (new, old) for new, old, path in (word.split("\t", 2) for word in words[count:])}
        changed = zip(words[1:count:2], words[:count:2], strict=True)
        return tuple(
            (path, facts[-1], *lines.get(path, ("-", "-")))
            for path, facts in sorted(changed)
            if not _is_same_content(*facts.split(" ")[2:4])
        )

    async def not_kept(self, picture: FolderSnapshot, paths: Sequence[str]) -> frozenset[str]:
        """Return those of the files whose content the picture does not keep: too big, unreadable, or with a secret."""
        if not paths:
            return frozenset()
        scratch = await self._opened()
        listed = split(await scratch.git("ls-tree", "-r", "-z", "--long", picture.tree, "--", *paths))
        found: set[str] = set()
        for facts, path in (entry.split("\t", 1) for entry in listed):
            _, _, blob, size = facts.split()
            if size.isdigit() and int(size) <= _LONGEST_LINE:
                text = await scratch.git("cat-file", "blob", blob)
                if text.startswith(_NOT_KEPT):
                    found.add(_shown(path))
        return frozenset(found)

    async def names(self, picture: FolderSnapshot) -> list[str]:
        """Return the paths of all files, as the file system has them."""
        return split(await (await self._opened()).git("ls-tree", "-r", "-z", "--name-only", picture.tree))

    async def uncommitted(self, picture: FolderSnapshot) -> frozenset[str]:
        """Return the files that are not as the commit has them that was checked out then; none if there was none."""
        return frozenset(_shown(path) for path in await self.uncommitted_names(picture))

    async def uncommitted_names(self, picture: FolderSnapshot) -> frozenset[str]:
        """Return the same as `uncommitted`, with paths as the file system has them.

        A file that git stores in other bytes, with other line ends or through a filter, is as the commit has it if
        git says so.
        """
        if picture.head is None:
            return frozenset()
        committed = FolderSnapshot(picture.head, picture.head)  # git takes a commit for its tree
        kinds = {path: kind for path, kind, _, _ in await self._differing(committed, picture)}
        modified = [path for path, kind in kinds.items() if kind == "M"]
        repository = (await self._opened()).repository
        if not modified or repository is None:
            return frozenset(kinds)
        return frozenset(kinds.keys() - await clean_files(repository, picture.head, modified))

    async def patch(self, before: FolderSnapshot, after: FolderSnapshot, *, max_bytes: int) -> tuple[str, bool]:
        """What differs, as a patch for people to read, and whether it is cut (behind a whole line)."""
        if before.tree == after.tree:
            return "", False
        scratch = await self._opened()
        with self._temporary("patch") as file:
            await scratch.git(*_TREES, "-p", f"--output={file}", before.tree, after.tree)
            data = await asyncio.to_thread(_first_bytes, file, max_bytes + 1)
        text = data.decode("utf-8", "replace").encode()  # what stands for a byte that is no text is longer
        if len(text) <= max_bytes:
            return text.decode(), False
        return text[: text.rfind(b"\n", 0, max_bytes) + 1].decode(), True

    async def commits(self, before: FolderSnapshot, after: FolderSnapshot) -> list[tuple[str, str]]:
        """The commits (hash, subject) that are reached from the later HEAD and not from the earlier; oldest first."""
        if after.head is None or after.head == before.head:
            return []
        since = () if before.head is None else (f"^{before.head}",)
        words = ("log", "-z", "--reverse", "--topo-order", f"--max-count={MAX_COMMITS}", "--format=%H %s")
        listed = await (await self._opened()).git(*words, "--end-of-options", after.head, *since)
        return [(name, _shown(subject)) for name, _, subject in (line.partition(" ") for line in _parts(listed))]

    def _own_folder(self) -> Path:
        """The session's folder, which may lie in the project; if it is the other way round, only the store."""
        return self._store if self._project.is_relative_to(self._store.parent) else self._store.parent

    async def _opened(self) -> Scratch:
        return self._scratch or await self._open()

    async def _open(self) -> Scratch:
        """The store, with what the repository says now: an agent may have made one, or changed what is ignored."""
        if not self._project.is_dir():
            raise GitError(("status",), f"the folder is not there any more: {self._project}")
        repository = find_repository(self._project)
        if repository is None:
            await asyncio.to_thread(count_files, self._project)
        root = self._project if repository is None else repository.root
        settings = {} if repository is None else await repository.settings()
        await asyncio.to_thread(_prepare, self._store, repository, settings, is_first=self._scratch is None)
        self._scratch = Scratch(self._store, root, repository)
        return self._scratch

    async def _look(self, scratch: Scratch, index: str) -> str:
        """Bring the index up to date; its tree."""
        tracked = await self._tracked_files(scratch)
        known, changed = await self._listed(scratch, index, tracked)
        new = sorted(tracked - known)
        # A repository that has become a submodule is one entry: its files have none of their own any more.
        links = tuple(f"{path}/" for path in new if (scratch.root / path).is_dir())
        await _update(scratch, index, "--force-remove", paths=[path for path in known if path.startswith(links)])
        paths = [*changed, *new]
        files = {path: _size(scratch.root, path) for path in self._without_ours(scratch.root, paths)}
        missing = [path for path, size in files.items() if size is None]
        plain = [path for path, size in files.items() if size is not None and 0 <= size <= MAX_FILE]
        secret = await self._with_secrets(scratch, plain)
        plain = [path for path in plain if path not in secret]
        await _update(scratch, index, "--force-remove", paths=missing)
        await _update(scratch, index, "--add", "--remove", "--replace", paths=plain)  # one may vanish meanwhile
        for path in files.keys() - {*missing, *plain, *secret}:
            await _stand_in(scratch, index, path)
        for path, content in secret.items():
            await _put_line(scratch, index, path, _line_for(content))
        if {*known, *files} - tracked:
            await _remove_ignored(scratch, index, tracked, await self._exclude(scratch, index))
        return await self._tree(scratch, index)

    async def _with_secrets(self, scratch: Scratch, paths: Sequence[str]) -> dict[str, str]:
        """Return the files with a secret that the user's repository does not have, and the hashes of their contents."""
        if not paths:
            return {}
        suspects = await asyncio.to_thread(lambda: [path for path in paths if self._is_suspect(scratch.root / path)])
        hashes: dict[str, str] = {}
        for path in suspects:
            with suppress(GitError):  # it vanished meanwhile
                content = (await scratch.git("hash-object", "--", path)).strip()
                if not await _has_object(scratch, content):
                    hashes[path] = content
        return hashes

    def _is_suspect(self, path: Path) -> bool:
        """Whether a file has a secret in it; one that has not changed since it was searched is not read again."""
        if path.is_dir():  # another repository
            return False
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a link, which has no content, or gone
            return False
        with os.fdopen(file, "rb") as opened:
            status = os.fstat(file)
            stamp = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            known = self._searched.get(str(path))
            if known is None or known[0] != stamp:
                known = stamp, stat.S_ISREG(status.st_mode) and self._has_secret(opened.read(MAX_FILE))
                self._searched[str(path)] = known
            return known[1]

    async def _tree(self, scratch: Scratch, index: str) -> str:
        """The tree of an index; git is asked only for one that has changed."""
        file = self._store / index
        before = _checksum(file)
        if before in self._trees:
            return self._trees[before]
        tree = (await scratch.git("write-tree", "--missing-ok", index=index)).strip()
        self._trees = {before: tree, _checksum(file): tree}  # git has noted in it what it has written
        return tree

    async def _tracked_files(self, scratch: Scratch) -> set[str]:
        """The files that the user's index has, whatever git would ignore."""
        if scratch.repository is None:
            return set()
        now = mark(scratch.repository.git_dir / "index")
        if now is None or now != self._tracked[0]:
            self._tracked = now, set(split(await scratch.repository.git("ls-files", "-z")))
        return self._tracked[1]

    async def _listed(self, scratch: Scratch, index: str, tracked: set[str]) -> tuple[set[str], list[str]]:
        """The files that the index has, and those that are not as it has them."""
        listed = await self._listed_by_rules(scratch, index)
        changed = dict.fromkeys(path for tag, path in listed if tag in _CHANGED)
        others = [path for path in changed if path.endswith("/") and path.rstrip("/") not in tracked]
        inner = await _inner_files(scratch, others)
        return {path for tag, path in listed if tag not in _CHANGED}, [*changed, *inner]

    async def _listed_by_rules(self, scratch: Scratch, index: str) -> list[tuple[str, str]]:
        """The files and how git marks each; once more if a new `.gitignore` has turned up that names an output."""
        words = ("ls-files", "-z", "-t", "-c", "-o", "-m", "-d")
        while True:
            exclude = await self._exclude(scratch, index)
            listed = [(line[0], line[2:]) for line in split(await scratch.git(*words, exclude, index=index))]
            found = {path for _, path in listed if path.rpartition("/")[2] == ignore_rules.NAME}
            if found <= self._rule_files:
                return listed
            self._rule_files |= found

    async def _exclude(self, scratch: Scratch, index: str) -> str:
        """The option that tells git what to ignore: the rules of the first picture, and new ones for outputs."""
        if self._rules is None:
            self._rules = await self._first_rules(scratch, index)
        now = await self._rules_now(scratch)
        new = [rule for rule in ignore_rules.output_rules(now) if rule not in self._rules]
        file = self._store / "exclude"
        put_file(file, _joined_rules([*self._rules, *new]))
        return f"--exclude-from={file}"

    async def _first_rules(self, scratch: Scratch, index: str) -> list[str]:
        kept = self._first.read()
        if kept is None:
            listed = split(await scratch.git("ls-files", "-z", "-c", "-o", "--exclude-standard", index=index))
            self._rule_files = {path for path in listed if path.rpartition("/")[2] == ignore_rules.NAME}
            self._first.write(_joined_rules(await self._rules_now(scratch)))
            kept = self._first.read() or b""  # as a resume will read it
        return kept.decode("utf-8", "surrogateescape").splitlines()

    async def _rules_now(self, scratch: Scratch) -> list[str]:
        repository = scratch.repository
        settings = {} if repository is None else await repository.settings()
        files = {ignore_rules.NAME, *self._rule_files}
        return await asyncio.to_thread(ignore_rules.rules_of, repository, scratch.root, settings, files)

    def _without_ours(self, root: Path, paths: Iterable[str]) -> list[str]:
        """The paths without what is Atomic's own, and without folders, which are other repositories."""
        ours = tuple(f"{os.path.relpath(path, root)}/" for path in self._hidden if Path(path).is_relative_to(root))
        return [path for path in paths if not path.endswith("/") and not path.startswith(ours)]

    @asynccontextmanager
    async def _working_index(self, scratch: Scratch) -> AsyncGenerator[str]:
        """A copy of the index, which becomes the index in the end: no lock is left behind by whoever is killed."""
        with self._temporary("index") as copy:
            if (self._store / "index").exists():
                shutil.copy2(self._store / "index", copy)  # with its time, by which git tells what it cannot be sure of
            elif scratch.repository is not None:
                copy_index(scratch.repository, self._store, name=copy.name)
                await _believe_no_flags(scratch, copy.name)
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
    """The pictures of a project that all of this event loop share: what one has found out, the others know."""
    known = _shared.setdefault(asyncio.get_running_loop(), {})
    if (store, project) not in known:
        known[store, project] = SnapshotStore(
            store, project, ignored=ignored, has_secret=has_secret, first_rules=first_rules
        )
    return known[store, project]


def _joined_rules(rules: Iterable[str]) -> bytes:
    return "".join(f"{rule}\n" for rule in rules).encode("utf-8", "surrogateescape")


def _checksum(index: Path) -> bytes:
    """What git has put at the end of an index, over all of it; nothing if there is no index."""
    try:
        with index.open("rb") as file:
            file.seek(-20, os.SEEK_END)
            return file.read()
    except FileNotFoundError:
        return b""


def _prepare(store: Path, repository: Repository | None, settings: dict[str, str], *, is_first: bool) -> None:
    """Make the store, or bring it up to date; its index stays what it is.

    `is_first`: this process has not looked yet for what a killed one has left there.
    """
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    furnish(store, repository, settings)
    if not is_first:
        return
    own = f"tmp-{os.getpid()}-"
    for path in store.glob("tmp-*"):
        if not path.name.startswith(own):  # of one that was killed: a session has one process
            path.unlink(missing_ok=True)


async def _believe_no_flags(scratch: Scratch, index: str) -> None:
    """Look at files too of which the user's index says that they need not be looked at."""
    listed = [(line[0], line[2:]) for line in split(await scratch.git("ls-files", "-z", "-v", index=index))]
    assumed = [path for tag, path in listed if tag.islower()]
    skipped = [path for tag, path in listed if tag in "sS" and _size(scratch.root, path) is not None]
    await _update(scratch, index, "--no-assume-unchanged", paths=assumed)
    await _update(scratch, index, "--no-skip-worktree", paths=skipped)


async def _remove_ignored(scratch: Scratch, index: str, tracked: set[str], exclude: str) -> None:
    """Take out what git ignores by now, but for what the user's index has all the same."""
    ignored = split(await scratch.git("ls-files", "-z", "-c", "-i", exclude, index=index))
    await _update(scratch, index, "--force-remove", paths=[path for path in ignored if path not in tracked])


async def _inner_files(scratch: Scratch, folders: Iterable[str]) -> list[str]:
    """The files of other repositories within the folder, which git itself would not show."""
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


async def _update(scratch: Scratch, index: str, *words: str, paths: Sequence[str]) -> None:
    if paths:
        text = "".join(f"{path}\0" for path in paths)
        await scratch.git("update-index", "-z", *words, "--stdin", index=index, input=text)


async def _stand_in(scratch: Scratch, index: str, path: str) -> None:
    """Put a line in place of a file that is too big to keep or cannot be read; it changes when the file does."""
    with suppress(FileNotFoundError):
        status = (scratch.root / path).lstat()
        line = f"{_NOT_KEPT}{status.st_size} bytes, last changed at {status.st_mtime_ns} ns.\n"
        await _put_line(scratch, index, path, line)


async def _put_line(scratch: Scratch, index: str, path: str, line: str) -> None:
    blob = (await scratch.git("hash-object", "-w", "--stdin", input=line)).strip()
    await scratch.git("update-index", "-z", "--index-info", index=index, input=f"100644 {blob}\t{path}\0")


async def _has_object(scratch: Scratch, name: str) -> bool:
    try:
        await scratch.git("cat-file", "-e", name)
    except GitError:
        return False
    return True


def _line_for(content: str) -> str:
    """Return the line that stands in for a file with a secret; `content` is its hash."""
    return f"{_NOT_KEPT}it has a secret in it. Its hash is {content}.\n"


def _is_same_content(old: str, new: str) -> bool:
    """Whether one of two blobs is the line that stands in for the other."""
    return old == _hash_of_line_for(new) or new == _hash_of_line_for(old)


def _hash_of_line_for(content: str) -> str:
    line = _line_for(content).encode()
    algorithm = hashlib.sha1 if len(content) == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(line) + line, usedforsecurity=False).hexdigest()


def _size(root: Path, path: str) -> int | None:
    """How big a file is (-1: it cannot be read); None if there is none, or something that git could not keep."""
    place = root / path
    try:
        status = place.lstat()
    except OSError:  # it is gone, or lies in a folder that is closed to us
        return None
    if os.path.realpath(place.parent) != str(place.parent):
        return None  # it lies behind a link, which is a file itself
    if stat.S_ISREG(status.st_mode):
        return status.st_size if os.access(place, os.R_OK) else -1
    is_repository = stat.S_ISDIR(status.st_mode) and (place / ".git").exists()
    return 0 if stat.S_ISLNK(status.st_mode) or is_repository else None


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)


def _file_change(path: str, letter: str, insertions: str, deletions: str) -> FileChange:
    counts = [int(number) if number.isdigit() else 0 for number in (insertions, deletions)]
    return FileChange(_shown(path), _STATUS.get(letter, "modified"), *counts)


def _parts(listed: str) -> list[str]:
    return [line for line in listed.split("\0") if line]


def _shown(text: str) -> str:
    """As text that JSON can carry, whatever bytes it has."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
