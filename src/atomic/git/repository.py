"""The user's repository, without the programs that it names.

Git is called on a temporary view: a folder with links to the repository's objects and
refs and a `config` of our own, which has only the settings that are plain data.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atomic.base.untrusted_files import read_bounded
from atomic.config import common_folder, git_folder
from atomic.git.calls import GitError, run_git, split
from atomic.processes.temporary_folders import temporary_prefix

# How files and objects are stored, who commits, which files are ignored. None can name
# a program.
_SETTINGS = {
    "core.repositoryformatversion",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.autocrlf",
    "core.eol",
    "core.excludesfile",
    "core.sharedrepository",
    "extensions.objectformat",
    "extensions.refstorage",
    "user.name",
    "user.email",
}
# Unfinished commands, by a file or folder in the git folder. The order matters: during
# a rebase the file of a cherry-pick may exist too.
_OPERATIONS = {
    "rebase-apply/applying": "am",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_COMMIT_HOOKS = ("pre-commit", "prepare-commit-msg", "commit-msg")
_NOT_IN_VIEW = {"config", "config.worktree", "hooks"}
# Variables that decide which files git reads settings from.
_ENVIRONMENT = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
# Bytes of a file of refs. A longer one is left to git, whose calls have a time limit.
_MAX_REFS = 64 * 1024 * 1024
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
# Submodules within submodules.
_MAX_DEPTH = 10
HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

# Inode, size and times of a file that is always replaced as a whole; None: no file.
Mark = tuple[int, int, int, int] | None


class _Settings(msgspec.Struct, frozen=True):
    """Settings, the files and variables they come from, and `core.hooksPath`."""

    values: dict[str, str]
    files: dict[str, Mark]
    environment: list[str | None]
    hooks: str = ""

    def is_current(self) -> bool:
        if self.environment != _environment():
            return False
        return all(mark(path) == known for path, known in self.files.items())


# By git folder: comparing marks is cheaper than calling git.
_settings_read: dict[Path, _Settings] = {}


class Repository:
    """A working tree and its git folders.

    `git_dir` belongs to this working tree (HEAD, index), `common_dir` to all working
    trees of the repository (objects, refs).
    """

    def __init__(self, root: Path, git_dir: Path, common_dir: Path) -> None:
        self.root = root
        self.git_dir = git_dir
        self.common_dir = common_dir
        self._settings: dict[str, str] | None = None

    async def git(self, *arguments: str, env: Mapping[str, str] | None = None, input: str = "") -> str:
        """Run git without the repository's settings, hooks and filters.

        Raises GitError.
        """
        with _view(self.common_dir, await self.settings()) as view:
            return await run_git(*arguments, cwd=self.root, env={**self._folders(view), **(env or {})}, input=input)

    async def git_as_user(self, *arguments: str, base: Mapping[str, str], timeout: float, protocols: str = "") -> str:
        """Run git with the user's global settings, but not the repository's.

        Raises GitError.

        The user's filters, login and ssh command are used; filters, commands and hooks
        that the repository names are not. `base` is the environment, `protocols` the
        value of GIT_ALLOW_PROTOCOL.
        """
        with _view(self.common_dir, await self.settings()) as view:
            env = {
                **self._folders(view),
                "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL"),
                "GIT_CONFIG_NOSYSTEM": os.environ.get("GIT_CONFIG_NOSYSTEM"),
                "GIT_ALLOW_PROTOCOL": protocols,
            }
            return await run_git(*arguments, cwd=self.root, env=env, timeout=timeout, base=base, is_short=False)

    def _folders(self, view: Path) -> dict[str, str]:
        return {"GIT_DIR": str(self.git_dir), "GIT_COMMON_DIR": str(view), "GIT_WORK_TREE": str(self.root)}

    async def remotes(self) -> dict[str, str]:
        """Return the remotes in the repository's own file, with their push addresses.

        Raises GitError.
        """
        words = ("config", "--file", str(self.common_dir / "config"), "--no-includes", "-z", "--list")
        listed = await run_git(*words, cwd=self.root, env={})
        found: dict[str, str] = {}
        # A `pushurl` overrides a `url`.
        for key in ("url", "pushurl"):
            for name, _, value in (entry.partition("\n") for entry in listed.split("\0")):
                if name.startswith("remote.") and name.endswith(f".{key}"):
                    found[name.removeprefix("remote.").removesuffix(f".{key}")] = value
        return found

    async def settings(self) -> dict[str, str]:
        """Return the settings of the repository and the user that are plain data.

        Files that they include are not read. Raises GitError.
        """
        if self._settings is None:
            known = _settings_read.get(self.git_dir)
            if known is None or not known.is_current():
                known = await self._read_settings()
                _settings_read[self.git_dir] = known
            self._settings = known.values
        return self._settings

    async def _read_settings(self) -> _Settings:
        named = [self.common_dir / "config", self.git_dir / "config.worktree", *_users_files()]
        # Before git reads the files, so that a later change is noticed.
        marks = {str(path): mark(path) for path in named}
        environment = {
            "GIT_DIR": str(self.git_dir),
            "GIT_CONFIG_NOSYSTEM": os.environ.get("GIT_CONFIG_NOSYSTEM"),
            "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL"),
        }
        words = ("config", "--list", "--no-includes", "--show-origin", "-z")
        listed = (await run_git(*words, cwd=self.root, env=environment)).split("\0")
        pairs = [(name, value) for name, _, value in (entry.partition("\n") for entry in listed[1::2])]
        read = {os.path.join(self.root, origin.removeprefix("file:")) for origin in listed[:-1:2]}
        marks |= {path: mark(path) for path in read - marks.keys()}
        values = {name: value for name, value in pairs if name in _SETTINGS}
        return _Settings(values, marks, _environment(), dict(pairs).get("core.hookspath", ""))

    async def head(self) -> tuple[str | None, str | None]:
        """Return the commit that is checked out (None: no commit yet) and the branch,
        if any.

        Raises GitError.
        """
        found = self._read_head_files()
        if found is not None:
            return found
        try:
            commit, name = (await self.git("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")).split()
        except GitError:
            # A branch without a commit.
            return None, (await self.git("symbolic-ref", "HEAD")).strip()
        return commit, None if name == "HEAD" else name

    def branch_in_head(self) -> str:
        """Return the branch of the checkout as HEAD names it; empty if it is detached."""
        head = text_of(self.git_dir / "HEAD")
        name = head.removeprefix("ref: refs/heads/")
        return "" if name == head else name

    def operation(self) -> str:
        """Return the git command that the user has begun and not finished, or ""."""
        for name, command in _OPERATIONS.items():
            if os.path.lexists(self.git_dir / name):
                return command
        return ""

    async def commit_hooks(self) -> list[str]:
        """Return the names of hooks that may refuse a commit. They are not run."""
        await self.settings()
        hooks = self._hooks_folder(_settings_read[self.git_dir].hooks)
        return [name for name in _COMMIT_HOOKS if os.access(hooks / name, os.X_OK)]

    def _hooks_folder(self, named: str) -> Path:
        return self.root / os.path.expanduser(named) if named else self.common_dir / "hooks"

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Return whether `new` contains the history of `old`.

        False if `old` is missing.
        """
        try:
            return not (await self.git("rev-list", "--max-count=1", "--end-of-options", old, f"^{new}")).strip()
        except GitError:
            return False

    async def has_commit(self, commit: str) -> bool:
        """Return whether the repository has a commit."""
        try:
            await self.git("cat-file", "-e", f"{commit}^{{commit}}")
        except GitError:
            return False
        return True

    async def ignored(self) -> list[str]:
        """Return the files that git ignores; of a folder with only such files its name."""
        words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
        return split(await self.git(*words))

    async def commits(self, old: str, new: str) -> list[str]:
        """Return the commits that `new` reaches and `old` does not, newest first."""
        return (await self.git("rev-list", "--end-of-options", new, f"^{old}")).split()

    async def differing(self, old: str, new: str) -> set[str]:
        """Return the files that differ between two commits."""
        words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--end-of-options")
        return set(split(await self.git(*words, old, new)))

    async def index(self, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return mode and object of some files in the index."""
        if not paths:
            return {}
        listed = await self.git("ls-files", "--stage", "-z", "--", *paths)
        entries = (entry.partition("\t") for entry in split(listed))
        return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in entries}

    async def staged(self, commit: str) -> dict[str, tuple[str, str] | None]:
        """Return mode and object of files that differ between index and commit.

        None: the index does not have the file.
        """
        listed = split(await self.git("diff-index", "--cached", "-z", "--no-renames", "--raw", commit))
        found: dict[str, tuple[str, str] | None] = {}
        for facts, path in zip(listed[::2], listed[1::2], strict=True):
            _, mode, _, name, _ = facts.split(" ")
            found[path] = None if mode == "000000" else (mode, name)
        return found

    def _read_head_files(self) -> tuple[str, str | None] | None:
        """Read commit and branch from git's files.

        Return None if git has to be called.
        """
        head = text_of(self.git_dir / "HEAD")
        if HASH.fullmatch(head):
            return head, None
        name = head.removeprefix("ref: ")
        if not name.startswith("refs/heads/") or "/." in name or name == head:
            return None
        commit = text_of(self.common_dir / name)
        if not commit:
            lines = (line.split(" ") for line in text_of(self.common_dir / "packed-refs").splitlines())
            commit = next((words[0] for words in lines if words[1:] == [name]), "")
        return (commit, name) if HASH.fullmatch(commit) else None


def mark(path: str | os.PathLike[str]) -> Mark:
    """Return a value that changes when the file is replaced.

    None if it does not exist.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _environment() -> list[str | None]:
    return [os.environ.get(name) for name in _ENVIRONMENT]


def _users_files() -> list[Path]:
    """Return the files that may hold the user's settings, now or later."""
    home, xdg, named, _ = _environment()
    if named is not None:
        return [Path(named)]
    folder = Path(xdg or Path(home or "/", ".config"))
    return [Path(home or "/", ".gitconfig"), folder / "git" / "config", Path("/etc/gitconfig")]


def text_of(path: Path) -> str:
    """Return the text of a regular file, or "".

    Links and pipes are left to git, whose calls have a time limit.
    """
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            return read_bounded(path, _MAX_REFS).decode("utf-8", "surrogateescape").strip()
    except OSError:
        pass
    return ""


def find_repository(folder: str | os.PathLike[str]) -> Repository | None:
    """Return the repository that a folder belongs to."""
    start = Path(folder).resolve()
    for root in (start, *start.parents):
        git_dir = git_folder(root)
        if git_dir is not None:
            return Repository(root, git_dir, common_folder(git_dir))
    return None


@contextmanager
def _view(common_dir: Path, settings: Mapping[str, str]) -> Generator[Path]:
    """Make a folder like the repository's, with another `config` and without `hooks`.

    Overriding settings one by one would miss some: filters, drivers and includes can
    have any name.
    """
    folder = tempfile.mkdtemp(prefix=temporary_prefix("git"))
    try:
        for name in os.listdir(common_dir):
            if name not in _NOT_IN_VIEW:
                os.symlink(os.path.join(common_dir, name), os.path.join(folder, name))
        view = Path(folder)
        (view / "config").write_bytes(settings_file({"core.bare": "false", **settings}))
        yield view
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_file(settings: Mapping[str, str]) -> bytes:
    """Return the content of a git configuration file."""
    lines: list[str] = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{key} = "{quoted}"\n')
    return "".join(lines).encode("utf-8", "surrogateescape")


class InnerFiles(msgspec.Struct, frozen=True):
    """Uncommitted work in submodules, with paths from the root of the outer repository.

    `files` maps each path to its submodule; git cannot read the `unreadable`
    submodules.
    """

    files: dict[str, str]
    unreadable: list[str]


async def submodules_of(repository: Repository) -> dict[str, tuple[str, Repository]]:
    """Return the submodules that are checked out: by folder, the commit in the index and
    the repository. Raises GitError.
    """
    found: dict[str, tuple[str, Repository]] = {}
    if not (repository.root / ".gitmodules").is_file():
        return found
    for entry in split(await repository.git("ls-files", "--stage", "-z")):
        facts, _, folder = entry.partition("\t")
        inner = find_repository(repository.root / folder) if facts.startswith("160000 ") else None
        if inner is not None and inner.root == (repository.root / folder).resolve():
            found[folder] = facts.split(" ")[1], inner
    return found


async def uncommitted_in_submodules(repository: Repository, *, depth: int = 0) -> InnerFiles:
    """Find files that differ from the commits of their submodules.

    The outer repository shows a submodule only as a changed commit. Raises GitError for
    the repository itself.
    """
    found = InnerFiles({}, [])
    if depth > _MAX_DEPTH:
        return found
    for folder, (_, inner) in (await submodules_of(repository)).items():
        try:
            status = split(await inner.git(*_STATUS))
            deeper = await uncommitted_in_submodules(inner, depth=depth + 1)
        except GitError:
            found.unreadable.append(folder)
            continue
        found.files.update((f"{folder}/{entry[3:]}", folder) for entry in status)
        found.files.update((f"{folder}/{path}", f"{folder}/{name}") for path, name in deeper.files.items())
        found.unreadable.extend(f"{folder}/{name}" for name in deeper.unreadable)
    return found
