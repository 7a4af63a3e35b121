"""Which folder is the root of a git repository, decided without running git.

A `.git` that git does not take for one (an empty folder, a file that leads nowhere) must not end a search: git, and the
agents that ask it, go on upwards and find what Atomic would have missed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

_MOST = 64 * 1024  # bytes of a file that is looked at here
_HEAD = re.compile(rb"ref:\s*refs/\S+\s*|[0-9a-f]{40}(?:[0-9a-f]{24})?\s*")
_LINE = re.compile(r'\s*(?:[#;].*|\[[\w.-]+(?:\s+"[^"\\]*")?\]|[A-Za-z][\w-]*\s*(?:=[^\\"]*)?)?')
_EXTENSIONS = (
    "compatobjectformat",
    "noop",
    "noop-v1",
    "objectformat",
    "partialclone",
    "preciousobjects",
    "refstorage",
    "relativeworktrees",
    "worktreeconfig",
)


def git_folder(root: Path) -> Path | None:
    """Return the git folder of the working tree with that root: HEAD, objects and refs are there. None: it is no root.

    `.git` is that folder, or a file that names it (of a linked worktree or a submodule).
    """
    entry = root / ".git"
    if not os.path.isdir(entry):
        content = _content(entry)
        if content is None:
            return None
        word, _, target = content.decode("utf-8", "surrogateescape").strip().partition(": ")
        if word != "gitdir" or not target or "\0" in target:
            return None
        entry = Path(os.path.realpath(root / target))
    shared = common_folder(entry)
    has_all = os.path.isdir(f"{shared}/objects") and os.path.isdir(f"{shared}/refs")
    return entry if has_all and _has_head(entry) else None


def common_folder(git_dir: Path) -> Path:
    """Return the git folder that all working trees of a repository share: where the objects and refs are."""
    content = _content(f"{git_dir}/commondir")
    if content is None:
        return git_dir
    return Path(os.path.realpath(git_dir / content.decode("utf-8", "surrogateescape").strip().replace("\0", "")))


def main_checkout(folder: Path) -> Path | None:
    """Return the root of the main working tree, for a folder in a linked one; None if it is in no linked one."""
    for place in (folder, *folder.parents):
        if (git_dir := git_folder(place)) is not None:
            shared = common_folder(git_dir)
            is_linked = shared != git_dir and shared.name == ".git" and shared.parent != place
            return shared.parent if is_linked else None
    return None


def up_to_repository(folder: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the root of its repository.

    Where it is in doubt what git makes of a `.git`, nothing ends the search: an agent whose git fails may look in all
    folders up to the root of the file system.
    """
    in_doubt = False
    for place in (folder, *folder.parents):
        yield place
        if in_doubt or not os.path.lexists(place / ".git"):
            continue
        git_dir = git_folder(place)
        if git_dir is not None and not _is_doubtful(git_dir, place):
            return
        in_doubt = True


def _is_doubtful(git_dir: Path, root: Path) -> bool:
    """Whether git might refuse the repository, or take another folder for its root, because of owner or settings."""
    try:
        owners = {os.stat(place).st_uid for place in (root, git_dir)}
    except OSError:
        return True
    if owners - {os.getuid()}:
        return True
    files = (common_folder(git_dir) / "config", git_dir / "config.worktree")
    return any(os.path.lexists(file) and _has_odd_settings(_content(file)) for file in files)


def _has_odd_settings(content: bytes | None) -> bool:
    if content is None or len(content) >= _MOST:
        return True
    section = ""
    for line in content.decode("utf-8", "replace").splitlines():
        if not _LINE.fullmatch(line):
            return True
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]").split()[0].split(".")[0].casefold()
            if section.startswith("include"):
                return True
        elif line and line[0] not in "#;":
            key, _, value = (part.strip().casefold() for part in line.partition("="))
            if _is_odd(section, key, value):
                return True
    return False


def _is_odd(section: str, key: str, value: str) -> bool:
    if section == "core":
        wrong_version = key == "repositoryformatversion" and value not in ("0", "1")
        return wrong_version or key == "worktree" or (key == "bare" and value != "false")
    return section == "extensions" and key not in _EXTENSIONS


def _has_head(git_dir: Path) -> bool:
    head = f"{git_dir}/HEAD"
    if os.path.islink(head):  # as old versions of git made it
        return os.readlink(head).startswith("refs/")
    return (content := _content(head)) is not None and _HEAD.fullmatch(content) is not None


def _content(path: str | Path) -> bytes | None:
    """Return the beginning of a regular file; None for anything else."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: to open a pipe would wait
            return None
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(file, _MOST)
        finally:
            os.close(file)
    except OSError:
        return None
