"""Find code that OpenCode would run in an untrusted project.

With OPENCODE_DISABLE_PROJECT_CONFIG, OpenCode 1.18 ignores the project's MCP servers,
tools, formatters and language servers. It still loads plugins: the files in
`.opencode/plugin[s]/` and those that `opencode.json[c]` names, here and in all folders
up to the root of the repository, or of the file system without one. It also fetches the
repositories that `references` name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from atomic.base.formats import parse_jsonc
from atomic.base.untrusted_files import read_bounded
from atomic.config import up_to_repository
from atomic.config.known_agents import OPENCODE_CONFIGS
from atomic.providers.errors import UntrustedProjectError

_FOLDERS = ("plugin", "plugins")
_SUFFIXES = (".ts", ".js")
_KEYS = ("plugin", "plugins", "reference", "references")
_OWN = ".opencode"


def refuse_project_code(folder: Path) -> None:
    """Raise UntrustedProjectError with all files whose code would run."""
    items = [str(item) for item in sorted(set(project_code(folder)))]
    if items:
        raise UntrustedProjectError("opencode", items)


def project_code(folder: Path) -> Iterator[Path]:
    """Yield the files of the project that OpenCode would run.

    The user's own `~/.opencode` does not belong to a project.
    """
    home = Path.home().resolve()
    for place in up_to_repository(folder.resolve()):
        yield from _files_that_name_code(place)
        if place != home:
            yield from _files_that_name_code(place / _OWN)
            for name in _FOLDERS:
                try:
                    files = list((place / _OWN / name).iterdir())
                except OSError:  # missing or unreadable, for OpenCode too
                    continue
                yield from (file for file in files if file.suffix.lower() in _SUFFIXES)


def _files_that_name_code(place: Path) -> Iterator[Path]:
    for name in OPENCODE_CONFIGS:
        if os.path.exists(place / name) and _names_code(place / name):
            yield place / name


def _names_code(file: Path) -> bool:
    """Return whether a file names plugins or references.

    An unreadable file counts: OpenCode may be able to read it.
    """
    try:
        text = read_bounded(file).decode()
        return bool(text.strip()) and any(parse_jsonc(text).get(key) for key in _KEYS)
    except (OSError, ValueError):  # including UnicodeDecodeError
        return True
