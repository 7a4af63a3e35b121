"""Find the root of a git repository without running git.

A `.git` that git ignores (an empty folder, a file that leads nowhere) must not end a
search. Git, and agents that ask it, continue upwards and find files that Atomic would
have missed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from atomic.base.untrusted_files import read_start

_MAX_BYTES = 64 * 1024  # of one file
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
    """Return the git folder (with HEAD, objects and refs) of a root.

    None if it is not a root.

    `.git` is that folder, or in a linked worktree or submodule a file that names it.
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
    """Return the git folder that all working trees of a repository share."""
    content = _content(f"{git_dir}/commondir")
    if content is None:
        return git_dir
    return Path(os.path.realpath(git_dir / content.decode("utf-8", "surrogateescape").strip().replace("\0", "")))


def main_checkout(folder: Path) -> Path | None:
    """Return the root of the main working tree for a folder in a linked one, else None."""
    for parent in (folder, *folder.parents):
        git_dir = git_folder(parent)
        if git_dir is not None:
            shared = common_folder(git_dir)
            is_linked = shared != git_dir and shared.name == ".git" and shared.parent != parent
            return shared.parent if is_linked else None
    return None


def up_to_repository(folder: Path) -> Iterator[Path]:
    """Yield a folder and its parents, up to the root of its repository.

    If it is not certain that git accepts a `.git`, the search continues up to `/`: an
    agent whose git fails may look there.
    """
    in_doubt = False
    for parent in (folder, *folder.parents):
        yield parent
        if in_doubt or not os.path.lexists(parent / ".git"):
            continue
        git_dir = git_folder(parent)
        if git_dir is not None and not _is_doubtful(git_dir, parent):
            return
        in_doubt = True


def _is_doubtful(git_dir: Path, root: Path) -> bool:
    """Return whether git might refuse the repository or use another root, by owner or
    settings.
    """
    try:
        owners = {os.stat(path).st_uid for path in (root, git_dir)}
    except OSError:
        return True
    if owners - {os.getuid()}:
        return True
    files = (common_folder(git_dir) / "config", git_dir / "config.worktree")
    return any(os.path.lexists(file) and _has_odd_settings(_content(file)) for file in files)


def _has_odd_settings(content: bytes | None) -> bool:
    if content is None or len(content) >= _MAX_BYTES:
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
    if os.path.islink(head):  # old versions of git made links
        return os.readlink(head).startswith("refs/")
    content = _content(head)
    return content is not None and _HEAD.fullmatch(content) is not None


def _content(path: str | Path) -> bytes | None:
    """Return the beginning of a regular file; None for anything else."""
    try:
        return read_start(path, _MAX_BYTES)
    except OSError:
        return None
