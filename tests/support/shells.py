"""The shells of the PATH, or those that `make shells` unpacked."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.programs import FOLDER

_UNPACKED = FOLDER.with_name("shells") / "usr"
# A shell finds its modules and functions below /usr, so the unpacked files are shown there, to it alone.
_SHOW = 'mount -t overlay none -o "lowerdir=$0:/usr" /usr && exec "$@"'


def shell(name: str, *words: str) -> list[str | Path]:
    """Return the command that starts a shell. One that is missing is an error: `make shells` brings it."""
    program = shutil.which(name)
    if program is not None:
        return [program, *words]
    assert (_UNPACKED / "bin" / name).exists(), f"{name} is missing: install it, or run `make shells`"
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", _SHOW, _UNPACKED, name, *words]
