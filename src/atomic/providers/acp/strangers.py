"""What a project carries that an agent would run by itself: hooks, plugins, servers.

No flag and no variable keeps these agents from it, as far as tried: they are not started where such a file is. It is
looked for as they do it: in the folder and above it, up to the root of its repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from atomic.bounded import beginning_of
from atomic.config import main_checkout, up_to_repository
from atomic.providers.opencode.trust import project_code

_FRONT = 64 * 1024  # of a file; what makes an agent run something stands at its beginning

Check = Callable[[Path], Iterable[Path]]


def strangers_code(agent: str, cwd: Path) -> list[str]:
    """The files, as paths from the folder. An agent that is not known could read any of them."""
    cwd = cwd.resolve()
    checks = _CHECKS[agent] if agent in _CHECKS else [check for checks in _CHECKS.values() for check in checks]
    found = [file for folder in _folders(cwd) for check in checks for file in check(folder)]
    if agent == "opencode" or agent not in _CHECKS:
        found += project_code(cwd)
    return [os.path.relpath(file, cwd) for file in dict.fromkeys(found)]


def _folders(cwd: Path) -> Iterator[Path]:
    """Yield the folder and those above it, up to the repository's root; the user's own home is no stranger's."""
    home = Path.home().resolve()
    for folder in up_to_repository(cwd):
        if folder in (home, Path(folder.anchor)):
            break
        yield folder
    if (main := main_checkout(cwd)) is not None and main != home:
        yield main


def _files(*patterns: str) -> Check:
    """Whatever is there under these names, whatever is in it."""
    tops = [(pattern.partition("/")[0], pattern) for pattern in patterns]

    def check(folder: Path) -> Iterator[Path]:
        for top, pattern in tops:
            if os.path.lexists(folder / top):  # mostly it is not there, and a glob costs more than a look
                yield from sorted(folder.glob(pattern))

    return check


def _files_that_say(words: str, *patterns: str) -> Check:
    """Files in which these words stand; or a backslash, by which a word can be written so that nobody sees it."""
    hint = re.compile(rf"\\|{words}", re.IGNORECASE)
    return lambda folder: (file for file in _files(*patterns)(folder) if hint.search(_beginning(file)))


def _beginning(file: Path) -> str:
    try:
        return beginning_of(file, _FRONT).decode(errors="replace")
    except OSError:
        return "\\"  # it cannot be looked at: that is no reason to trust it


_CLAUDE_SETTINGS = _files(".claude/settings.json", ".claude/settings.local.json", ".mcp.json")

# By the agent. What OpenCode runs is found by `project_code`.
_CHECKS: Mapping[str, Sequence[Check]] = {
    "claude": (
        _CLAUDE_SETTINGS,
        _files_that_say("mcp|hook", ".claude/agents/**/*.md", ".claude/skills/**/*.md", ".claude/commands/**/*.md"),
    ),
    "codex": (_files(".codex/config.toml", ".codex/hooks.json", ".codex/hooks/*"),),
    "copilot": (
        _CLAUDE_SETTINGS,
        _files(".github/hooks/**/*.json", ".github/lsp.json", ".github/mcp.json", ".github/extensions/*"),
        _files(".github/copilot/settings.json", ".github/copilot/settings.local.json"),
        # An agent of the project may bring servers of its own, which run when it is called.
        _files_that_say("mcp|hook", ".github/agents/**/*.md", ".claude/agents/**/*.md"),
    ),
    "gemini": (_files(".gemini/settings.json", ".gemini/.env", ".gemini/extensions/*", ".gemini/hooks/*"),),
    "opencode": (),
}
