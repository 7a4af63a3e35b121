"""The files of a project that an agent's settings name: scripts of hooks, servers, plugins, marketplaces.

Whoever approves settings approves what they start. The words of the settings are tried as paths, whatever the format
says they mean: a word that is a file of the project is one of them. What such a script starts itself is not followed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

from atomic.base import jsonc
from atomic.base.toml import load_toml
from atomic.base.untrusted_files import FoundFile, Root

MAX_SCRIPT = 16 * 1024 * 1024  # bytes of a script or program
_MOST_WORDS = 5000
_WORD = re.compile(r"[^\s\"'`,;()\[\]{}<>|&=]+")
_ROOTS = re.compile(r"\$\{?(?:CLAUDE_PROJECT_DIR|workspaceFolder|workspaceRoot|PWD)\}?/?|file://")
_MODULE = re.compile(r"(?<=-m)[\s\"',]+([\w.]+)")
_ENDINGS = ("", ".ts", ".js", ".mjs", ".py", ".sh")
# What makes a folder one that an agent loads code from.
_MARKS = (
    ".claude-plugin",
    "plugin.json",
    "marketplace.json",
    "hooks",
    ".mcp.json",
    "package.json",
    "index.ts",
    "index.js",
)
_LOADED = (".claude-plugin", "plugins", "hooks", "agents", "skills", "commands")  # of one that is the project itself
_TOOLS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),  # their scripts
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile",),
}


_NO_COMMANDS = ("permissions", "permission", "instructions")  # keys whose files are read, not run


def named_files(root: Root, settings: FoundFile) -> Iterator[FoundFile]:
    """Yield the files that settings name, each once; of a folder with plugins all that is in it."""
    seen: set[str] = set()
    for path in _paths(root, settings):
        if path in seen:
            continue
        seen.add(path)
        if os.path.isdir(os.path.join(root.folder, path)):
            yield from _of_folder(root, path)
        elif (file := _script(root, path)) is not None:
            yield file


def _of_folder(root: Root, folder: str) -> Iterator[FoundFile]:
    places = [folder] if folder != "." else list(_LOADED)
    for place in places:
        yield from root.walk(place, skipping=())


def _script(root: Root, path: str) -> FoundFile | None:
    full = os.path.join(root.folder, path)
    if os.path.islink(full) and not _is_inside(root, full):  # the Python of a virtual environment, for example
        return FoundFile(path, f"a link to {os.readlink(full)}".encode("utf-8", "surrogateescape"))
    return root.read(path, limit=MAX_SCRIPT)


def _paths(root: Root, settings: FoundFile) -> Iterator[str]:
    """The words of the settings that are files, or folders with plugins, from the root."""
    beside = os.path.dirname(settings.name)
    for word in _words(settings):
        for base in dict.fromkeys(("", beside)):
            for ending in _ENDINGS:
                path = os.path.normpath(os.path.join(root.folder, base, f"{word}{ending}"))
                name = os.path.relpath(path, root.folder)
                if not name.startswith("..") and name != settings.name and _counts(path):
                    yield name


def _counts(path: str) -> bool:
    if os.path.isdir(path):
        return any(os.path.lexists(os.path.join(path, mark)) for mark in _MARKS) or _has_plugins_below(path)
    return os.path.lexists(path)


def _has_plugins_below(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:200]
    except OSError:
        return False
    return any(os.path.lexists(os.path.join(one, mark)) for one in inner for mark in _MARKS[:4])


def _words(settings: FoundFile) -> Iterable[str]:
    texts = list(_texts(settings))
    found = [_ROOTS.sub("", word) or "." for text in texts for word in _WORD.findall(text)][:_MOST_WORDS]
    modules = [name.replace(".", "/") for text in (*texts, " ".join(texts)) for name in _MODULE.findall(text)]
    found += [path for name in modules for path in (name, f"{name}/__main__", f"{name}/__init__")]
    found += [file for word in found for file in _TOOLS.get(os.path.basename(word), ())]
    return dict.fromkeys(word for word in found if "\0" not in word and len(word) < 1000)


def _texts(settings: FoundFile) -> Iterator[str]:
    """The texts in a file: the strings of JSON and TOML, which may be written with escapes, and Markdown's head.

    Scripts and prose mention many files that they do not start.
    """
    text = settings.data.decode("utf-8-sig", "replace")
    if settings.name.endswith(".md"):
        yield text.partition("---")[2].partition("\n---")[0]
        return
    if not settings.name.endswith((".json", ".jsonc", ".toml")):
        return
    try:
        data: Any = load_toml(text) if settings.name.endswith(".toml") else jsonc.parse(text)
    except (ValueError, RecursionError):
        yield text
        return
    waiting: deque[Any] = deque(value for key, value in data.items() if key not in _NO_COMMANDS)
    while waiting:
        value: Any = waiting.popleft()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting.extend(item for pair in cast("dict[str, Any]", value).items() for item in pair)
        elif isinstance(value, list):
            waiting.extend(cast("list[Any]", value))


def _is_inside(root: Root, path: str) -> bool:
    return os.path.realpath(path).startswith(root.real.rstrip(os.sep) + os.sep)
