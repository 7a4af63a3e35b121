"""Repositories for tests, made with the real git and without the user's settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Björn",
    "GIT_COMMITTER_EMAIL": "b@example.org",
}


def git(folder: Path, *words: str, check: bool = True, env: dict[str, str] | None = None) -> str:
    """Return the output of git."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**ENVIRONMENT, **(env or {})}, capture_output=True, check=False
    )
    assert not check or done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape")


def commit(folder: Path, message: str = "more", *words: str, date: str = "") -> str:
    """Commit all files and return the commit's name."""
    env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date} if date else None
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message, *words, env=env)
    return git(folder, "rev-parse", "HEAD").strip()


def new_repository(folder: Path, files: dict[str, str] | None = None, *, date: str = "") -> Path:
    """Make a repository with one commit; with a date it always has the same id."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    write(folder, {"readme": "hello\n"} if files is None else files)
    commit(folder, "first", date=date)
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copy(folder: Path, name: str) -> Path:
    """Copy a folder with its git folder to a sibling."""
    return Path(shutil.copytree(folder, folder.parent / name, symlinks=True))


def content(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Return kind and content of all files except the git folder."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name == ".git" or name.startswith(".git/") or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink():
            found[name] = "link", os.fsencode(os.readlink(path))
        else:
            found[name] = (
                "program" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "file",
                path.read_bytes(),
            )
    return found


def state(folder: Path) -> tuple[str, str, str]:
    """Return HEAD, the history and the status of a repository."""
    head = git(folder, "symbolic-ref", "-q", "HEAD", check=False)
    return (
        head,
        git(folder, "log", "--format=%H %an %ae %aI %cn %cI %B", check=False),
        git(folder, "status", "--porcelain"),
    )
