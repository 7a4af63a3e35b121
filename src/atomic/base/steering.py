"""Names in a project that steer programs: git, Atomic, agents and editors.

A file with such a name in its path can make a program run something. Recordings may not
write them. `loading.trusted_files` lists in detail which files agents read.
"""

from __future__ import annotations

import unicodedata
from pathlib import PurePosixPath

STEERING = frozenset(
    {
        ".agents",
        ".atomic",
        ".claude",
        ".claude.json",
        ".codex",
        ".copilot",
        ".cursor",
        ".devcontainer",
        ".envrc",
        ".gemini",
        ".git",
        ".gitattributes",
        ".github",
        ".gitmodules",
        ".idea",
        ".kimi",
        ".lsp.json",
        ".mcp.json",
        ".opencode",
        ".qwen",
        ".vscode",
        "git~1",  # the short name of .git on Windows file systems
        "opencode.json",
        "opencode.jsonc",
    }
)


def steers(path: str) -> bool:
    """Return whether a path of a project has a part that steers programs.

    Parts are compared as the most lenient file systems do: without case, without
    characters that HFS+ ignores and without dots and spaces at the end.
    """
    return any(_plain(part) in STEERING for part in PurePosixPath(path.replace("\\", "/")).parts)


def _plain(part: str) -> str:
    seen = "".join(letter for letter in part if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFKC", seen).casefold().partition(":")[0].rstrip(". ")
