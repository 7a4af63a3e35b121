"""A git folder of our own beside a working tree: to take its picture, to compare pictures, to apply patches.

The user's index, refs and objects are not touched by it. Bytes are taken as they are in the files: no line end is
changed and no filter runs, whatever the project's attributes say.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atomic.base.files import replace_file
from atomic.base.untrusted_files import read_bounded
from atomic.git.calls import run_git
from atomic.git.errors import GitError
from atomic.git.repository import Repository, settings_file
from atomic.processes.temporary_folders import temporary_prefix

MAX_FILE = 16 * 1024 * 1024  # bytes of one changed file
MAX_CHANGED = 128 * 1024 * 1024  # bytes of all changed files together

_ATTRIBUTES = "* -text !eol -filter -ident !working-tree-encoding !diff !merge\n"
_LINK = "160000"  # the mode of another repository within the tree
_DIFF = ("--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "-O/dev/null")

Entry = tuple[str, str]  # mode and object of a file in a tree


class Patch(msgspec.Struct, frozen=True):
    """What differs between two trees, and the files whose difference cannot be told."""

    text: str
    left_out: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """A file that differs, as it was and as it is; None: it is not there."""

    old: Entry | None
    new: Entry | None
    binary: bool = False


class Scratch:
    """See the module. `open_scratch` makes one and takes it away."""

    def __init__(self, folder: Path, root: Path, repository: Repository | None) -> None:
        self.root, self.repository = root, repository
        self.left_out: set[str] = set()  # too big, or not readable
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
        """Run git here. `keep`: what it makes goes to the objects of the user's repository. Raises GitError.

        `root`: another folder that is to be looked at as the working tree.
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
        """The tree of all files as they are now, but for those that git ignores; `ignored` names more."""
        listed = await self.git("ls-files", "-z", "-o", "-m", "-d", "--exclude-standard")
        hidden = {*map(os.fspath, ignored), str(self._folder)}
        paths = [path for path in split(listed) if not _is_below(self.root / path, hidden)]
        return await self.picture(self._affordable(paths))

    async def picture(self, paths: Iterable[str], *, index: str = "index") -> str:
        """The tree of the index with these files as they are now; one that is not there is taken out."""
        if words := _joined(paths):
            await self.git("update-index", "-z", "--add", "--remove", "--replace", "--stdin", index=index, input=words)
        return await self.tree(index=index)

    async def tree(
        self, base: str | None = None, entries: Mapping[str, Entry | None] = {}, *, index: str = "index"
    ) -> str:
        """The tree of the index, which is first set to a base, if there is one, with these entries (None: no file)."""
        if base is not None:
            await self.git("read-tree", base, index=index)
        if entries:
            await self.git("update-index", "-z", "--index-info", index=index, input=index_info(entries))
        return (await self.git("write-tree", "--missing-ok", index=index)).strip()

    async def empty_tree(self) -> str:
        return (await self.git("mktree")).strip()

    async def entries(self, tree: str, paths: Iterable[str] | None = None) -> dict[str, Entry]:
        """The files of a tree (or of a commit), but for other repositories within it; `paths`: only these."""
        wanted = None if paths is None else set(paths)
        result: dict[str, Entry] = {}
        for line in split(await self.git("ls-tree", "-r", "-z", "--full-tree", tree)):
            facts, _, path = line.partition("\t")
            mode, _, name = facts.split(" ")
            if mode != _LINK and (wanted is None or path in wanted):
                result[path] = mode, name
        return result

    async def changed(self, old: str, new: str) -> dict[str, Change]:
        """The files that differ between two trees, but for other repositories within them."""
        self._show(as_bytes=False)
        words = split(await self.git("diff-tree", "-r", "-z", "--no-renames", "--raw", "--numstat", old, new))
        # First two words for each file, the facts and the path, then one for each, the numbers and the path.
        count = next((at for at in range(0, len(words), 2) if not words[at].startswith(":")), len(words))
        changes = zip(words[:count:2], words[1:count:2], strict=True)
        binary = {word[4:] for word in words[count:] if word.startswith("-\t-\t")}
        return {path: _change(facts, path in binary) for facts, path in changes if _LINK not in facts[:15]}

    async def diff(self, old: str, new: str, *, is_secret: Callable[[str], bool] = lambda text: False) -> Patch:
        """The patch from one tree to another, as text that JSON can carry.

        Where git shows bytes (a picture, or text that is no UTF-8), nobody could see a secret in them any more: a
        file that holds one is left out.
        """
        changed = {} if old == new else await self.changed(old, new)
        shown = [path for path, change in changed.items() if _is_text(path) and not change.binary]
        text = await self._diff_of(old, new, shown)
        if not _is_text(text):
            parts = {path: await self._diff_of(old, new, [path]) for path in shown}
            shown = [path for path, part in parts.items() if _is_text(part)]
            text = "".join(parts[path] for path in shown)
        left_out: list[str] = []
        for path in sorted(changed.keys() - set(shown)):
            if not _is_text(path) or await self._holds(changed[path], is_secret):
                left_out.append(path)
            else:
                text += await self._diff_of(old, new, [path], as_bytes=True)
        return Patch(text, tuple(left_out))

    def _affordable(self, paths: Iterable[str]) -> list[str]:
        """The paths without what is too big, cannot be read, or is another repository."""
        left, chosen = MAX_CHANGED, list[str]()
        for path in paths:
            if path.endswith("/"):
                continue
            size = _size(self.root / path)
            if size > min(left, MAX_FILE):
                self.left_out.add(path)
            else:
                left -= size
                chosen.append(path)
        return chosen

    async def _holds(self, change: Change, is_secret: Callable[[str], bool]) -> bool:
        entries = (change.old, change.new)
        return any([is_secret(await self.git("cat-file", "blob", entry[1])) for entry in entries if entry is not None])

    async def _diff_of(self, old: str, new: str, paths: list[str], *, as_bytes: bool = False) -> str:
        """The patch of some files; `as_bytes`: whatever is in them."""
        self._show(as_bytes=as_bytes)
        words = ("diff-tree", "-r", "-p", *_DIFF, old, new, "--")
        return "".join([await self.git(*words, *some) for some in in_groups(paths)])

    def _show(self, *, as_bytes: bool) -> None:
        """Have git look for itself whether files are text, or show all as bytes."""
        attributes = _ATTRIBUTES.replace("!diff", "-diff") if as_bytes else _ATTRIBUTES
        (self._folder / "info" / "attributes").write_text(attributes)


@asynccontextmanager
async def open_scratch(root: Path, repository: Repository | None) -> AsyncGenerator[Scratch]:
    """A git folder of our own for a working tree; it is gone with the context."""
    folder = Path(tempfile.mkdtemp(prefix=temporary_prefix("scratch")))
    try:
        settings = {} if repository is None else await repository.settings()
        furnish(folder, repository, settings)
        if repository is not None:
            copy_index(repository, folder)
        yield Scratch(folder, root, repository)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def furnish(folder: Path, repository: Repository | None, settings: Mapping[str, str]) -> None:
    """Put into a folder what makes it a git folder; one that is there already is brought up to date."""
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
        if (repository.common_dir / name).is_file():
            put_file(folder / name, _content(repository.common_dir / name))
        else:
            (folder / name).unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, MAX_FILE)
    except OSError as error:
        raise GitError(("status",), f"{path}: {error.strerror}") from error


def copy_index(repository: Repository, folder: Path, *, name: str = "index") -> None:
    """Copy the user's index, which knows which files are as git has them: without it each would have to be read."""
    for index in (repository.git_dir / "index", *repository.git_dir.glob("sharedindex.*")):
        if index.is_file():  # with its time, by which git tells what it cannot be sure of
            shutil.copy2(index, folder / (name if index.name == "index" else index.name))


def put_file(path: Path, data: bytes) -> None:
    """Write a file, unless it says that already: another call of git may be reading it."""
    if not path.is_file() or path.read_bytes() != data:
        replace_file(path, data, durable=False)


def index_info(entries: Mapping[str, Entry | None]) -> str:
    """Entries as `git update-index --index-info -z` reads them."""
    nothing = "0 " + "0" * 40
    return "".join(f"{nothing if entry is None else ' '.join(entry)}\t{path}\0" for path, entry in entries.items())


def split(listed: str) -> list[str]:
    """The words that git parts by zeros."""
    return listed.split("\0")[:-1]


def _joined(paths: Iterable[str]) -> str:
    return "".join(f"{path}\0" for path in paths)


def _change(facts: str, binary: bool) -> Change:
    old_mode, new_mode, old, new, _ = facts.removeprefix(":").split(" ")
    nothing = "000000"
    return Change(
        None if old_mode == nothing else (old_mode, old), None if new_mode == nothing else (new_mode, new), binary
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a byte that is no UTF-8
        return False
    return True


def _is_below(path: Path, folders: set[str]) -> bool:
    return any(str(one) in folders for one in (path, *path.parents))


def _size(path: Path) -> int:
    try:
        status = path.lstat()
    except OSError:  # it is gone: that costs nothing
        return 0
    return status.st_size if path.is_symlink() or os.access(path, os.R_OK) else MAX_CHANGED + 1


def in_groups(paths: list[str], length: int = 64 * 1024) -> Iterable[list[str]]:
    """The paths in groups that a command line can take."""
    group: list[str] = []
    room = length
    for path in paths:
        if group and len(path) * 4 > room:
            yield group
            group, room = [], length
        group.append(path)
        room -= len(path) * 4
    if group:
        yield group
