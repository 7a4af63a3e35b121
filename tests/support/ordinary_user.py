"""Start programs as a user without root.

If the tests run as root, programs get a user number that no user has. Folders with the
code that only root can open, such as root's home, are opened to them in a mount
namespace of their own. If the tests run as another user, programs run as that user.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.user import SOURCE, User

ROOT = Path(__file__).parents[2]
NUMBER = 54321 if os.geteuid() == 0 else os.geteuid()
_CODE = (Path(sys.prefix), Path(sys.base_prefix), SOURCE, ROOT)


def become_ordinary(user: User, *, may_make_namespaces: bool = True) -> list[str]:
    """Give a user's folders to an ordinary user, who runs the command from now on.

    Return the words before a command that start it as this user.
    """
    folder = user.home.parent
    words = _words(folder)
    if not may_make_namespaces:
        words += _WITHOUT_NAMESPACES
    user.program = folder / "atomic"
    user.program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, str(User.program)])} "$@"\n')
    user.program.chmod(0o755)
    user.env = {name: value for name, value in user.env.items() if not name.startswith("COVERAGE_")}
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NUMBER, NUMBER, follow_symlinks=False)
    return words


# A program in a user namespace that may have none below it cannot make one.
_WITHOUT_NAMESPACES = [
    "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c",
    'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps -all --inh-caps -all -- "$@"', "sh",
]  # fmt: skip


def _words(folder: Path) -> list[str]:
    if os.geteuid() != 0:
        return []
    words = ["setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups", "--"]
    needed = {path.resolve() for path in (*_CODE, folder) if _closed_folder(path.resolve())}
    if needed:
        script = "\n".join(["set -e", *_opening(needed), 'exec "$@"'])
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *words]
    return words


def _closed_folder(path: Path) -> Path | None:
    """Return the first folder on the way to a path that only its owner can open."""
    return next((one for one in (*reversed(path.parents), path) if not one.stat().st_mode & 0o001), None)


def _opening(needed: Iterable[Path]) -> list[str]:
    """Return commands that show each path in an empty folder in the place of a closed one."""
    paths = sorted(needed)
    # A path in another one comes with it.
    outer = [path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths)]
    lines = ["mount -t tmpfs -o mode=755 none /mnt"]
    for number, path in enumerate(outer):
        lines += [f"mkdir /mnt/{number}", f"mount --bind {shlex.quote(str(path))} /mnt/{number}"]
    closed = {folder for path in outer if (folder := _closed_folder(path)) is not None}
    lines += [f"mount -t tmpfs -o mode=755 none {shlex.quote(str(folder))}" for folder in sorted(closed)]
    for number, path in enumerate(outer):
        at = shlex.quote(str(path))
        lines += [f"mkdir -p {at}", f"mount --move /mnt/{number} {at}"]
    return [*lines, "umount /mnt"]
