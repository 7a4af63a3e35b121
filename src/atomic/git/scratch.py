"""A git folder of our own for a working tree, used for snapshots, comparisons and
patches.

It does not touch the user's index, refs or objects. File contents are taken byte by
byte: no line ends are converted and no filter runs, whatever the project's attributes
are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from atomic.base.files import replace_file
from atomic.base.untrusted_files import read_bounded
from atomic.git.calls import GitError, read_again, run_git, split
from atomic.git.repository import Repository, settings_file
from atomic.processes.temporary_folders import temporary_prefix

# Bytes of one changed file, and of all changed files together.
MAX_FILE = 16 * 1024 * 1024
MAX_CHANGED = 128 * 1024 * 1024

_ATTRIBUTES = "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n"
# The mode of another repository within the tree.
_REPOSITORY = "160000"
_NO_FILE = "000000"
DIFF_TREE = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "-O/dev/null")

# Mode and object of a file in a tree.
Entry = tuple[str, str]


class Patch(msgspec.Struct, frozen=True):
    """The difference between two trees, and the files that it does not cover."""

    text: str
    left_out: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """A file that differs, before and after; None: the file does not exist."""

    old: Entry | None
    new: Entry | None
    binary: bool = False


class DiffLine(NamedTuple):
    """What `git diff-tree` prints about one file. Counts of a binary file are "-"."""

    path: str
    letter: str
    old_mode: str
    new_mode: str
    old: str
    new: str
    insertions: str
    deletions: str


class Scratch:
    """A git folder for one working tree; see the module. `open_scratch` makes one."""

    def __init__(self, folder: Path, root: Path, repository: Repository | None) -> None:
        self.root = root
        self.repository = repository
        # Files that are too big or not readable.
        self.left_out: set[str] = set()
        self._folder = folder

    async def git(
        self,
        *arguments: str,
        input: str = "",
        index: str = "index",
        keep: bool = False,
        env: Mapping[str, str] | None = None,
        root: Path | None = None,
    ) -> str:
        """Run git in this folder. Raises GitError.

        `keep`: new objects go to the user's repository. `root`: use another folder as
        the working tree.
        """
        env = {
            **(env or {}),
            "GIT_DIR": str(self._folder),
            "GIT_WORK_TREE": str(root or self.root),
            "GIT_INDEX_FILE": str(self._folder / index),
        }
        if keep and self.repository is not None:
            env["GIT_OBJECT_DIRECTORY"] = str(self.repository.common_dir / "objects")
        return await run_git(*arguments, cwd=root or self.root, env=env, input=input)

    async def snapshot(self, ignored: Collection[Path] = ()) -> str:
        """Return the tree of all current files that neither git nor `ignored` ignores."""
        listed = await self.git("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard")
        hidden = {*map(os.fspath, ignored), str(self._folder)}
        budget = MAX_CHANGED
        paths: list[str] = []
        for path in split(listed):
            full = self.root / path
            # A folder in the list is another repository.
            if path.endswith("/") or any(str(folder) in hidden for folder in (full, *full.parents)):
                continue
            size = _size_of(full)
            if size > min(budget, MAX_FILE):
                self.left_out.add(path)
            else:
                budget -= size
                paths.append(path)
        return await self.tree_with_files(paths)

    async def tree_with_files(self, paths: Iterable[str], *, index: str = "index") -> str:
        """Return the tree of the index with the current state of these files."""
        listed = "".join(f"{path}\0" for path in paths)
        if listed:
            words = ("update-index", "-z", "--add", "--remove", "--replace", "--stdin")
            await read_again(lambda: self.git(*words, index=index, input=listed))
        return await self.tree(index=index)

    async def tree(
        self, base: str | None = None, entries: Mapping[str, Entry | None] = {}, *, index: str = "index"
    ) -> str:
        """Set the index to `base`, if given, add entries (None: no file), return its
        tree.
        """
        if base is not None:
            await self.git("read-tree", base, index=index)
        if entries:
            await self.git("update-index", "-z", "--index-info", index=index, input=index_info(entries))
        return (await self.git("write-tree", "--missing-ok", index=index)).strip()

    async def empty_tree(self) -> str:
        return (await self.git("mktree")).strip()

    async def entries(self, tree: str, paths: Iterable[str] | None = None) -> dict[str, Entry]:
        """Return the files of a tree or commit, without repositories in it.

        `paths`: return only these.
        """
        wanted = None if paths is None else set(paths)
        result: dict[str, Entry] = {}
        for line in split(await self.git("ls-tree", "-r", "-z", "--full-tree", tree)):
            facts, _, path = line.partition("\t")
            mode, _, name = facts.split(" ")
            if mode != _REPOSITORY and (wanted is None or path in wanted):
                result[path] = mode, name
        return result

    async def diff_lines(self, old: str, new: str) -> list[DiffLine]:
        """Return one line per file that differs between two trees."""
        words = split(await self.git(*DIFF_TREE, "-z", "--raw", "--numstat", old, new))
        # Two words per file come first, facts and path, then one with counts and path.
        count = next((at for at in range(0, len(words), 2) if not words[at].startswith(":")), len(words))
        counts: dict[str, tuple[str, str]] = {}
        for word in words[count:]:
            insertions, deletions, path = word.split("\t", 2)
            counts[path] = insertions, deletions
        lines: list[DiffLine] = []
        for facts, path in zip(words[:count:2], words[1:count:2], strict=True):
            old_mode, new_mode, old_object, new_object, letter = facts.removeprefix(":").split(" ")
            lines.append(
                DiffLine(path, letter[-1], old_mode, new_mode, old_object, new_object, *counts.get(path, ("-", "-")))
            )
        return lines

    async def changed(self, old: str, new: str) -> dict[str, Change]:
        """Return the files that differ between two trees, without repositories in them."""
        self._set_attributes(as_bytes=False)
        found: dict[str, Change] = {}
        for line in await self.diff_lines(old, new):
            if _REPOSITORY in (line.old_mode, line.new_mode):
                continue
            found[line.path] = Change(
                None if line.old_mode == _NO_FILE else (line.old_mode, line.old),
                None if line.new_mode == _NO_FILE else (line.new_mode, line.new),
                binary=line.insertions == "-",
            )
        return found

    async def diff(self, old: str, new: str, *, is_secret: Callable[[str], bool] = lambda text: False) -> Patch:
        """Return the patch from one tree to another, as text that JSON can carry.

        Redaction cannot find a secret in the encoded bytes of a binary patch. So a file
        that is not UTF-8 text and holds a secret is left out.
        """
        changed = {} if old == new else await self.changed(old, new)
        shown = [path for path, change in changed.items() if _is_text(path) and not change.binary]
        text = await self._diff_files(old, new, shown)
        if not _is_text(text):
            parts = {path: await self._diff_files(old, new, [path]) for path in shown}
            shown = [path for path, part in parts.items() if _is_text(part)]
            text = "".join(parts[path] for path in shown)
        left_out: list[str] = []
        for path in sorted(changed.keys() - set(shown)):
            if not _is_text(path) or await self._has_secret(changed[path], is_secret):
                left_out.append(path)
            else:
                text += await self._diff_files(old, new, [path], as_bytes=True)
        return Patch(text, tuple(left_out))

    async def _has_secret(self, change: Change, is_secret: Callable[[str], bool]) -> bool:
        for entry in (change.old, change.new):
            if entry is not None and is_secret(await self.git("cat-file", "blob", entry[1])):
                return True
        return False

    async def _diff_files(self, old: str, new: str, paths: list[str], *, as_bytes: bool = False) -> str:
        self._set_attributes(as_bytes=as_bytes)
        words = (*DIFF_TREE, "-p", "--binary", "--full-index", old, new, "--")
        return "".join([await self.git(*words, *group) for group in in_groups(paths)])

    def _set_attributes(self, *, as_bytes: bool) -> None:
        """Let git detect which files are text, or treat all of them as bytes."""
        attributes = _ATTRIBUTES.replace("!diff", "-diff") if as_bytes else _ATTRIBUTES
        (self._folder / "info" / "attributes").write_text(attributes)


@asynccontextmanager
async def open_scratch(root: Path, repository: Repository | None) -> AsyncGenerator[Scratch]:
    """Make a temporary git folder for a working tree and delete it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=temporary_prefix("scratch")))
    try:
        settings = {} if repository is None else await repository.settings()
        write_git_folder(folder, repository, settings)
        if repository is not None:
            copy_index(repository, folder)
        yield Scratch(folder, root, repository)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_git_folder(folder: Path, repository: Repository | None, settings: Mapping[str, str]) -> None:
    """Make a folder a git folder, or bring one up to date. Raises GitError."""
    for path in (folder / name for name in ("objects/info", "refs", "info")):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
    put_file(folder / "HEAD", b"ref: refs/heads/none\n")
    put_file(folder / "info" / "attributes", _ATTRIBUTES.encode())
    put_file(folder / "config", settings_file({"core.bare": "false", "core.quotepath": "false", **settings}))
    if repository is None:
        return
    put_file(folder / "objects" / "info" / "alternates", os.fsencode(f"{repository.common_dir / 'objects'}\n"))
    for name in ("info/exclude", "shallow"):
        original = repository.common_dir / name
        if not original.is_file():
            (folder / name).unlink(missing_ok=True)
            continue
        try:
            content = read_bounded(original, MAX_FILE)
        except OSError as error:
            raise GitError(("status",), f"{original}: {error.strerror}") from error
        put_file(folder / name, content)


def copy_index(repository: Repository, folder: Path, *, name: str = "index") -> None:
    """Copy the user's index, so that git need not read files that it knows as
    unchanged.
    """
    for index in (repository.git_dir / "index", *repository.git_dir.glob("sharedindex.*")):
        if index.is_file():
            # With its time: git compares it with the times of files written just
            # before.
            shutil.copy2(index, folder / (name if index.name == "index" else index.name))


def put_file(path: Path, data: bytes) -> None:
    """Write a file unless it has this content: another call of git may be reading it."""
    if not path.is_file() or path.read_bytes() != data:
        replace_file(path, data, durable=False)


def index_info(entries: Mapping[str, Entry | None]) -> str:
    """Return entries in the form of `git update-index --index-info -z`."""
    lines: list[str] = []
    for path, entry in entries.items():
        facts = "0 " + "0" * 40 if entry is None else " ".join(entry)
        lines.append(f"{facts}\t{path}\0")
    return "".join(lines)


def _is_text(text: str) -> bool:
    """Return whether text from git is UTF-8, without surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size_of(path: Path) -> int:
    """Return the size of a file: 0 if it is gone, too much if it cannot be read."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    return status.st_size if path.is_symlink() or os.access(path, os.R_OK) else MAX_CHANGED + 1


def in_groups(paths: list[str], length: int = 64 * 1024) -> Iterator[list[str]]:
    """Yield the paths in groups that fit on a command line."""
    group: list[str] = []
    room = length
    for path in paths:
        if group and len(path) * 4 > room:
            yield group
            group = []
            room = length
        group.append(path)
        room -= len(path) * 4
    if group:
        yield group
