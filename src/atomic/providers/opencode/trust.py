"""What a stranger's project would have OpenCode run, whatever it is told.

Told to leave the project's configuration alone (OPENCODE_DISABLE_PROJECT_CONFIG), OpenCode 1.18 ignores its MCP
servers, tools, formatters and language servers, but still loads its plugins: the files in `.opencode/plugin[s]/` and
those that `opencode.json[c]` names, here and in all folders up to the root of the repository, or of the file system
where there is none. It also fetches the repositories that `references` name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atomic import jsonc
from atomic.bounded import read_bounded
from atomic.config import up_to_repository
from atomic.providers.errors import UntrustedProjectError

_FOLDERS = ("plugin", "plugins")
_SUFFIXES = (".ts", ".js")
_FILES = ("opencode.json", "opencode.jsonc")
_KEYS = ("plugin", "plugins", "reference", "references")
_OWN = ".opencode"


def refuse_strangers(folder: Path) -> None:
    """Raises UntrustedProjectError with all that would run, before anything does."""
    items = [str(item) for item in sorted(set(project_code(folder)))]
    if items:
        raise UntrustedProjectError("opencode", items)


def project_code(folder: Path) -> Iterator[Path]:
    """What OpenCode would run of the project that a folder belongs to; the user's own `~/.opencode` is no project's."""
    home = Path.home().resolve()
    for place in up_to_repository(folder.resolve()):
        yield from _files_that_name_code(place)
        if place != home:
            yield from _files_that_name_code(place / _OWN)
            yield from _plugins(place / _OWN)


def _plugins(own: Path) -> Iterator[Path]:
    for name in _FOLDERS:
        try:
            yield from (file for file in (own / name).iterdir() if file.suffix.lower() in _SUFFIXES)
        except OSError:  # no folder, or one that we may not look into: nor may OpenCode
            continue


def _files_that_name_code(place: Path) -> Iterator[Path]:
    for name in _FILES:
        if os.path.exists(place / name) and _names_code(place / name):
            yield place / name


def _names_code(file: Path) -> bool:
    """Whether it names plugins or references; one that cannot be read here may be readable for OpenCode."""
    try:
        text = read_bounded(file).decode()
        return bool(text.strip()) and any(jsonc.parse(text).get(key) for key in _KEYS)
    except (OSError, ValueError):  # UnicodeDecodeError is one
        return True
