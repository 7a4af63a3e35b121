"""Put special files aside that git would wait for, or could not store.

Git opens some files by their names, in the tree and in the git folders of repositories
inside of it. With a named pipe there it waits without end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

_GIT = ".git"
_READ_BY_GIT = frozenset({".gitattributes", ".gitignore", ".gitmodules"})


def put_special_aside(written: Path, base: Path, *, is_layer: bool) -> list[str]:
    """Remove pipes, sockets and devices that are in the way of git, and return their
    paths.

    `written` has what programs have written in a workspace that is not open, `base` is
    the checkout that it was made of. A file of the base is there again afterwards: below
    a layer by itself. Other special files stay: git passes over them. Raises OSError.
    """
    found: list[str] = []
    for path in [*_special_files(written)]:
        way = path.relative_to(written)
        original = base / way
        has_original = original.is_symlink() or original.is_file()
        if not (_GIT in way.parts or way.name in _READ_BY_GIT or has_original):
            continue
        path.unlink()
        if has_original and not is_layer:
            shutil.copy2(original, path, follow_symlinks=False)
        found.append(str(way))
    return found


def _special_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        is_inner = _GIT in Path(parent).relative_to(folder).parts[1:]
        for name in (*folders, *names):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                # Git follows a link in a git folder. That of the workspace itself is only
                # asked, with a time limit.
                if is_inner and not path.is_file() and not path.is_dir():
                    yield path
            elif stat.S_ISCHR(mode):
                if path.lstat().st_rdev != 0:  # 0: in a layer, it marks a deleted file
                    yield path
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                yield path
