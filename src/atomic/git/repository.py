"""The user's repository, looked at through a view that has its objects and refs but none of its settings."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from atomic.git.calls import run_git
from atomic.git.errors import GitError

# What says how files and objects are stored, whom commits are by, and what is ignored; none of it can name a program.
_SETTINGS = {
    "core.repositoryformatversion",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.excludesfile",
    "core.sharedrepository",
    "extensions.objectformat",
    "extensions.refstorage",
    "user.name",
    "user.email",
}
_NOT_SHOWN = {"config", "config.worktree", "hooks"}


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

    async def settings(self) -> dict[str, str]:
        """Those settings of the repository and of the user that are data; files that they include are not read."""
        if self._settings is None:
            environment = {
                "GIT_DIR": str(self.git_dir),
                "GIT_CONFIG_NOSYSTEM": os.environ.get("GIT_CONFIG_NOSYSTEM"),
                "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL"),
            }
            listed = await run_git("config", "--list", "--no-includes", "-z", cwd=self.root, env=environment)
            pairs = (entry.partition("\n") for entry in listed.split("\0"))
            self._settings = {name: value for name, _, value in pairs if name in _SETTINGS}
        return self._settings

    async def head(self) -> tuple[str | None, str | None]:
        """The commit that is checked out (None: there is none yet) and the branch (None: no branch)."""
        try:
            commit, name = (await self.git("rev-parse", "HEAD", "--symbolic-full-name", "HEAD")).split()
        except GitError:  # there is no commit yet, but a branch that waits for it
            return None, (await self.git("symbolic-ref", "HEAD")).strip()
        return commit, None if name == "HEAD" else name


def find_repository(folder: str | os.PathLike[str]) -> Repository | None:
    """The repository that a folder belongs to; no file of it is believed but for where its parts are."""
    start = Path(folder).resolve()
    for root in (start, *start.parents):
        git_dir = _git_dir(root / ".git")
        if git_dir is not None:
            return Repository(root, git_dir, _common_dir(git_dir))
    return None


def _git_dir(entry: Path) -> Path | None:
    """The git folder that `.git` is, or names if it is a file (in a worktree or a submodule)."""
    if entry.is_file():
        first, _, target = entry.read_text("utf-8", "surrogateescape").strip().partition(": ")
        entry = (entry.parent / target).resolve() if first == "gitdir" else entry
    return entry if (entry / "HEAD").exists() or (entry / "HEAD").is_symlink() else None


def _common_dir(git_dir: Path) -> Path:
    try:
        return (git_dir / (git_dir / "commondir").read_text("utf-8", "surrogateescape").strip()).resolve()
    except (FileNotFoundError, NotADirectoryError):
        return git_dir


@contextmanager
def _view(common_dir: Path, settings: Mapping[str, str]) -> Generator[Path]:
    """A folder that looks like the repository's, with another `config` and without `hooks`.

    Overriding settings one by one would forget one: filters, drivers and includes have names of their own.
    """
    with tempfile.TemporaryDirectory(prefix="atomic-git-") as folder:
        view = Path(folder)
        for entry in common_dir.iterdir():
            if entry.name not in _NOT_SHOWN:
                (view / entry.name).symlink_to(entry)
        (view / "config").write_bytes(settings_file({"core.bare": "false", **settings}))
        yield view


def settings_file(settings: Mapping[str, str]) -> bytes:
    """A file of settings for git."""
    lines: list[str] = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{key} = "{quoted}"\n')
    return "".join(lines).encode("utf-8", "surrogateescape")
