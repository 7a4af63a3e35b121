"""Find the files of a project that an agent's settings name: scripts, servers, plugins.

A user who approves settings also approves the programs that they start. Every word of
the settings is tried as a path, whatever it means in the format. What such a script
starts itself is not followed.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

from atomic.base.formats import parse_jsonc, parse_toml
from atomic.base.untrusted_files import FoundFile, Root

MAX_SCRIPT = 16 * 1024 * 1024  # bytes of a script or program
_MAX_WORDS = 5000
_WORD = re.compile(r"[^\s\"'`,;()\[\]{}<>|&=]+")
_ROOTS = re.compile(r"\$\{?(?:CLAUDE_PROJECT_DIR|workspaceFolder|workspaceRoot|PWD)\}?/?|file://")
_MODULE = re.compile(r"(?<=-m)[\s\"',]+([\w.]+)")
_ENDINGS = ("", ".ts", ".js", ".mjs", ".py", ".sh")
# A folder with one of these is a plugin, from which an agent loads code.
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
# If the project itself is a plugin, these are its folders.
_PLUGIN_FOLDERS = (".claude-plugin", "plugins", "hooks", "agents", "skills", "commands")
# The files with the scripts of a tool.
_TOOLS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), ("package.json",)),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile",),
}
# Files under these keys are read, not run.
_NO_COMMANDS = ("permissions", "permission", "instructions")


def named_files(root: Root, settings: FoundFile) -> Iterator[FoundFile]:
    """Yield the files that settings name, each once.

    For a plugin's folder all files in it.
    """
    for path in dict.fromkeys(_paths(root, settings)):
        full = os.path.join(root.folder, path)
        if os.path.isdir(full):
            for folder in _PLUGIN_FOLDERS if path == "." else [path]:
                yield from root.walk(folder, skipping=())
        elif os.path.islink(full) and not _is_inside(root, full):  # such as the Python of a virtual environment
            yield FoundFile(path, f"a link to {os.readlink(full)}".encode("utf-8", "surrogateescape"))
        else:
            file = root.read(path, limit=MAX_SCRIPT)
            if file is not None:
                yield file


def _paths(root: Root, settings: FoundFile) -> Iterator[str]:
    """Yield the words of the settings that are files or plugins of the project, from
    its root.
    """
    beside = os.path.dirname(settings.name)
    for word in _words(settings):
        for base in dict.fromkeys(("", beside)):
            for ending in _ENDINGS:
                path = os.path.normpath(os.path.join(root.folder, base, f"{word}{ending}"))
                name = os.path.relpath(path, root.folder)
                if not name.startswith("..") and name != settings.name and _is_file_or_plugin(path):
                    yield name


def _is_file_or_plugin(path: str) -> bool:
    if not os.path.isdir(path):
        return os.path.lexists(path)
    if any(os.path.lexists(os.path.join(path, mark)) for mark in _MARKS):
        return True
    # A folder of plugins has them in its inner folders.
    try:
        with os.scandir(path) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:200]
    except OSError:
        return False
    return any(os.path.lexists(os.path.join(one, mark)) for one in inner for mark in _MARKS[:4])


def _words(settings: FoundFile) -> Iterable[str]:
    texts = list(_texts(settings))
    found = [_ROOTS.sub("", word) or "." for text in texts for word in _WORD.findall(text)][:_MAX_WORDS]
    modules = [name.replace(".", "/") for text in (*texts, " ".join(texts)) for name in _MODULE.findall(text)]
    found += [path for name in modules for path in (name, f"{name}/__main__", f"{name}/__init__")]
    found += [file for word in found for file in _TOOLS.get(os.path.basename(word), ())]
    return dict.fromkeys(word for word in found if "\0" not in word and len(word) < 1000)


def _texts(settings: FoundFile) -> Iterator[str]:
    """Yield the strings of JSON and TOML, with escapes resolved, or the front matter of
    Markdown.

    Scripts and prose are not searched: they mention many files that they do not start.
    """
    text = settings.data.decode("utf-8-sig", "replace")
    if settings.name.endswith(".md"):
        yield text.partition("---")[2].partition("\n---")[0]
        return
    if not settings.name.endswith((".json", ".jsonc", ".toml")):
        return
    try:
        data: Any = parse_toml(text) if settings.name.endswith(".toml") else parse_jsonc(text)
    except (ValueError, RecursionError):
        yield text
        return
    pending: deque[Any] = deque(value for key, value in data.items() if key not in _NO_COMMANDS)
    while pending:
        value: Any = pending.popleft()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending.extend(item for pair in cast("dict[str, Any]", value).items() for item in pair)
        elif isinstance(value, list):
            pending.extend(cast("list[Any]", value))


def _is_inside(root: Root, path: str) -> bool:
    return os.path.realpath(path).startswith(root.real.rstrip(os.sep) + os.sep)
