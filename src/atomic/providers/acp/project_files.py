"""Find code of a project that an agent would run by itself: hooks, plugins, servers.

No flag or variable prevents these agents from running it, as far as tested. So they are
not started if such a file exists, in the folder or above it, up to the root of its
repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from atomic.base.untrusted_files import read_start
from atomic.config import main_checkout, up_to_repository

_HEAD = 64 * 1024  # bytes; settings that run code are at the beginning of a file

Check = Callable[[Path], Iterable[Path]]


def find_project_code(agent: str, cwd: Path) -> list[str]:
    """Return the files, relative to the folder.

    All kinds for an unknown agent, and for one of which only the documentation was
    read: many also read the files of others.
    """
    cwd = cwd.resolve()
    checks = _CHECKS[agent] if agent in _CHECKS else [check for checks in _CHECKS.values() for check in checks]
    found = [file for folder in _folders(cwd) for check in checks for file in check(folder)]
    return [os.path.relpath(file, cwd) for file in dict.fromkeys(found)]


def _folders(cwd: Path) -> Iterator[Path]:
    """Yield the folder and its parents up to the repository's root, except the home
    folder.
    """
    home = Path.home().resolve()
    for folder in up_to_repository(cwd):
        if folder in (home, Path(folder.anchor)):
            break
        yield folder
    if (main := main_checkout(cwd)) is not None and main != home:
        yield main


def _files(*patterns: str) -> Check:
    """Match all files of these names, whatever their content."""
    tops = [(pattern.partition("/")[0], pattern) for pattern in patterns]

    def check(folder: Path) -> Iterator[Path]:
        for top, pattern in tops:
            if os.path.lexists(folder / top):  # usually missing, and cheaper than a glob
                yield from sorted(folder.glob(pattern))

    return check


def _files_containing(words: str, *patterns: str) -> Check:
    """Match files that contain these words, or a backslash, which could hide one."""
    hint = re.compile(rf"\\|{words}", re.IGNORECASE)
    return lambda folder: (file for file in _files(*patterns)(folder) if hint.search(_beginning(file)))


def _beginning(file: Path) -> str:
    try:
        return read_start(file, _HEAD).decode(errors="replace")
    except OSError:
        return "\\"  # an unreadable file is not trusted


_CLAUDE_SETTINGS = _files(".claude/settings.json", ".claude/settings.local.json", ".mcp.json")

# By agent. Copilot and OpenCode start over ACP only as programs of the configuration.
_CHECKS: Mapping[str, Sequence[Check]] = {
    "claude": (
        _CLAUDE_SETTINGS,
        _files_containing("mcp|hook", ".claude/agents/**/*.md", ".claude/skills/**/*.md", ".claude/commands/**/*.md"),
    ),
    "codex": (_files(".codex/config.toml", ".codex/hooks.json", ".codex/hooks/*"),),
    "copilot": (
        _CLAUDE_SETTINGS,
        _files(".github/hooks/**/*.json", ".github/lsp.json", ".github/mcp.json", ".github/extensions/*"),
        _files(".github/copilot/settings.json", ".github/copilot/settings.local.json"),
        # A sub-agent of the project may start MCP servers.
        _files_containing("mcp|hook", ".github/agents/**/*.md", ".claude/agents/**/*.md"),
    ),
    "gemini": (_files(".gemini/settings.json", ".gemini/.env", ".gemini/extensions/*", ".gemini/hooks/*"),),
    "others": (
        _files(".qwen/settings.json", ".qwen/.env", ".qwen/extensions/*", ".qwen/hooks/*", ".qwen/agents/*"),
        _files(".cursor/mcp.json", ".cursor/hooks.json", ".cursor/hooks/*", ".cursor/cli.json", ".cursor/plugins/*"),
        _files(
            ".goose/*", ".kimi/*", ".kimi-code/*", ".vibe/config.toml", ".vibe/.env", ".vibe/tools/*", ".vibe/hooks*"
        ),
        _files(".factory/mcp.json", ".factory/settings.json", ".factory/settings.local.json", ".factory/hooks*"),
        _files(".factory/plugins/*", ".factory/droids/*", ".augment/settings.json", ".augment/settings.local.json"),
        _files(".augment/hooks*", ".cline/*", ".clinerules/hooks/*", ".kilo/*", ".kilocode/mcp.json", "kilo.json*"),
    ),
    "opencode": (
        _files(".opencode/plugin/*", ".opencode/plugins/*", ".opencode/tool/*", ".opencode/tools/*"),
        _files_containing(
            "plugin|reference|mcp|lsp|formatter",
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/opencode.jsonc",
        ),
    ),
}
