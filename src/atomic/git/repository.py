"""The user's repository, looked at through a view that has its objects and refs but none of its settings."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atomic.base.untrusted_files import read_bounded
from atomic.config import common_folder, git_folder
from atomic.git.calls import run_git
from atomic.git.errors import GitError
from atomic.processes.temporary_folders import temporary_prefix

# What says how files and objects are stored, whom commits are by, and what is ignored; none of it can name a program.
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
# By the file or folder in the git folder that says so; a rebase may have the file of a cherry-pick too.
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
_NOT_SHOWN = {"config", "config.worktree", "hooks"}
_ENVIRONMENT = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")  # says where settings are
_MOST_REFS = 64 * 1024 * 1024  # bytes of a file of refs; a longer one is for git to read, which has a time limit
HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

Mark = tuple[int, int, int, int] | None  # of a file that is replaced as a whole: it differs when the file does


class _Settings(msgspec.Struct, frozen=True):
    """Settings, and what they were read from."""

    values: dict[str, str]
    files: dict[str, Mark]
    environment: list[str | None]
    hooks: str = ""  # the folder of hooks, where another one is named; it is only looked at


_settings_read: dict[Path, _Settings] = {}  # by git folder: to ask git costs more than to look whether it must be asked


class Repository:
    """Where a working tree and its git folders are."""

    def __init__(self, root: Path, git_dir: Path, common_dir: Path) -> None:
        self.root = root  # of the working tree
        self.git_dir = git_dir  # of this working tree: HEAD, index
        self.common_dir = common_dir  # of all working trees: objects, refs
        self._settings: dict[str, str] | None = None

    async def git(self, *arguments: str, env: Mapping[str, str] | None = None, input: str = "") -> str:
        """Run git in the working tree, without the settings, hooks and filters of the repository. Raises GitError."""
        settings = await self.settings()
        with _view(self.common_dir, settings) as view:
            return await run_git(
                *arguments,
                cwd=self.root,
                env={
                    "GIT_DIR": str(self.git_dir),
                    "GIT_COMMON_DIR": str(view),
                    "GIT_WORK_TREE": str(self.root),
                    **(env or {}),
                },
                input=input,
            )

    async def git_as_user(self, *arguments: str, base: Mapping[str, str], timeout: float, protocols: str = "") -> str:
        """Run git with the user's own global settings and with none of the repository's. Raises GitError.

        The user's filters, login and ssh command hold; a filter, a command or a hook that the repository names does
        not run. `base` is the environment; `protocols`: those that git may speak, as in GIT_ALLOW_PROTOCOL.
        """
        settings = await self.settings()
        with _view(self.common_dir, settings) as view:
            env = {
                "GIT_DIR": str(self.git_dir),
                "GIT_COMMON_DIR": str(view),
                "GIT_WORK_TREE": str(self.root),
                "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL"),
                "GIT_CONFIG_NOSYSTEM": os.environ.get("GIT_CONFIG_NOSYSTEM"),
                "GIT_ALLOW_PROTOCOL": protocols,
            }
            return await run_git(*arguments, cwd=self.root, env=env, timeout=timeout, base=base, is_short=False)

    async def remotes(self) -> dict[str, str]:
        """Return the remotes that the repository's own file names, and where they are pushed to. Raises GitError."""
        words = ("config", "--file", str(self.common_dir / "config"), "--no-includes", "-z", "--list")
        listed = await run_git(*words, cwd=self.root, env={})
        found: dict[str, str] = {}
        for key in ("url", "pushurl"):  # the latter beats the former
            for name, _, value in (entry.partition("\n") for entry in listed.split("\0")):
                if name.startswith("remote.") and name.endswith(f".{key}"):
                    found[name.removeprefix("remote.").removesuffix(f".{key}")] = value
        return found

    async def settings(self) -> dict[str, str]:
        """Those settings of the repository and of the user that are data; files that they include are not read."""
        if self._settings is None:
            known = _settings_read.get(self.git_dir)
            if known is None or not _still_holds(known):
                known = _settings_read[self.git_dir] = await self._read_settings()
            self._settings = known.values
        return self._settings

    async def _read_settings(self) -> _Settings:
        """Ask git, which tells too which files it has read."""
        named = [self.common_dir / "config", self.git_dir / "config.worktree", *_users_files()]
        marks = {str(path): mark(path) for path in named}  # before they are read: who changes them later is noticed
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
        """The commit that is checked out (None: there is none yet) and the branch (None: no branch)."""
        if (found := self._head_of_files()) is not None:
            return found
        try:
            commit, name = (await self.git("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")).split()
        except GitError:  # there is no commit yet, but a branch that waits for it
            return None, (await self.git("symbolic-ref", "HEAD")).strip()
        return commit, None if name == "HEAD" else name

    def operation(self) -> str:
        """Return the git command that the user has begun and not finished, or nothing."""
        found = (command for name, command in _OPERATIONS.items() if os.path.lexists(self.git_dir / name))
        return next(found, "")

    async def commit_hooks(self) -> list[str]:
        """The names of hooks that may refuse a commit. They are looked at and not run."""
        await self.settings()
        return self._hooks_in(_settings_read[self.git_dir].hooks)

    def _hooks_in(self, folder: str) -> list[str]:
        hooks = self.root / os.path.expanduser(folder) if folder else self.common_dir / "hooks"
        return [name for name in _COMMIT_HOOKS if os.access(hooks / name, os.X_OK)]

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Whether all of a commit's history is in that of another; a commit that is gone is in none."""
        try:
            return not (await self.git("rev-list", "--max-count=1", "--end-of-options", old, f"^{new}")).strip()
        except GitError:
            return False

    async def commits(self, old: str, new: str) -> list[str]:
        """The commits that are reached from one and not from the other; newest first."""
        return (await self.git("rev-list", "--end-of-options", new, f"^{old}")).split()

    async def differing(self, old: str, new: str) -> set[str]:
        """The files that two commits do not have alike."""
        words = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", "--end-of-options")
        return set((await self.git(*words, old, new)).split("\0")[:-1])

    async def index(self, paths: Sequence[str]) -> dict[str, tuple[str, str]]:
        """What the index has of some files: mode and object."""
        listed = (await self.git("ls-files", "--stage", "-z", "--", *paths)).split("\0")[:-1] if paths else []
        entries = (entry.partition("\t") for entry in listed)
        return {path: (facts.split(" ")[0], facts.split(" ")[1]) for facts, _, path in entries}

    async def staged(self, commit: str) -> dict[str, tuple[str, str] | None]:
        """The files that the index does not have as a commit has them: mode and object; None: it has none."""
        listed = (await self.git("diff-index", "--cached", "-z", "--no-renames", "--raw", commit)).split("\0")[:-1]
        found: dict[str, tuple[str, str] | None] = {}
        for facts, path in zip(listed[::2], listed[1::2], strict=True):
            _, mode, _, name, _ = facts.split(" ")
            found[path] = None if mode == "000000" else (mode, name)
        return found

    def _head_of_files(self) -> tuple[str, str | None] | None:
        """What the files say, in the usual case; None if git has to be asked."""
        head = text_of(self.git_dir / "HEAD")
        if HASH.fullmatch(head):
            return head, None
        name = head.removeprefix("ref: ")
        if not name.startswith("refs/heads/") or "/." in name or name == head:
            return None
        commit = text_of(self.common_dir / name) or _packed(self.common_dir, name)
        return (commit, name) if HASH.fullmatch(commit) else None


def mark(path: str | os.PathLike[str]) -> Mark:
    """What tells whether a file is the same as before; None: there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _still_holds(known: _Settings) -> bool:
    return known.environment == _environment() and all(mark(path) == was for path, was in known.files.items())


def _environment() -> list[str | None]:
    return [os.environ.get(name) for name in _ENVIRONMENT]


def _users_files() -> Iterable[Path]:
    """Where settings of the user may be, now or later."""
    home, xdg, named, _ = _environment()
    if named is not None:
        return [Path(named)]
    folder = Path(xdg or Path(home or "/", ".config"))
    return [Path(home or "/", ".gitconfig"), folder / "git" / "config", Path("/etc/gitconfig")]


def text_of(path: Path) -> str:
    """What is in a plain file, else nothing: links and pipes are for git to read, which has a time limit."""
    try:
        if stat.S_ISREG(path.lstat().st_mode):
            return read_bounded(path, _MOST_REFS).decode("utf-8", "surrogateescape").strip()
    except OSError:
        pass
    return ""


def _packed(common_dir: Path, name: str) -> str:
    """The commit of a branch that has no file of its own."""
    lines = (line.split(" ") for line in text_of(common_dir / "packed-refs").splitlines())
    return next((words[0] for words in lines if words[1:] == [name]), "")


def find_repository(folder: str | os.PathLike[str]) -> Repository | None:
    """The repository that a folder belongs to; no file of it is believed but for where its parts are."""
    start = Path(folder).resolve()
    for root in (start, *start.parents):
        git_dir = git_folder(root)
        if git_dir is not None:
            return Repository(root, git_dir, common_folder(git_dir))
    return None


@contextmanager
def _view(common_dir: Path, settings: Mapping[str, str]) -> Generator[Path]:
    """A folder that looks like the repository's, with another `config` and without `hooks`.

    Overriding settings one by one would forget one: filters, drivers and includes have names of their own.
    """
    folder = tempfile.mkdtemp(prefix=temporary_prefix("git"))
    try:
        for name in os.listdir(common_dir):
            if name not in _NOT_SHOWN:
                os.symlink(os.path.join(common_dir, name), os.path.join(folder, name))
        view = Path(folder)
        (view / "config").write_bytes(settings_file({"core.bare": "false", **settings}))
        yield view
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_file(settings: Mapping[str, str]) -> bytes:
    """A file of settings for git."""
    lines: list[str] = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{key} = "{quoted}"\n')
    return "".join(lines).encode("utf-8", "surrogateescape")
