"""`atomic diff ID [TASK]`: show what a run, or one of its tasks, has changed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless
from atomic.cli.errors import CliError
from atomic.cli.run_branches import RunWork, require_landed, require_work, users_setting
from atomic.cli.streams import STDOUT, json_line, put, put_bytes, readable, tell
from atomic.git.calls import split

_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")
_NOT_FOUND = 127  # exit code of a shell
_PAGER_SETTINGS = {"LESS": "FRX", "LV": "-c"}  # as git sets them
_RESET = "\x1b[m"
_BOLD = "\x1b[1m"
_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}


def diff_command(arguments: Arguments) -> int:
    """Print a diff: in the user's pager on a terminal, else as git writes it."""
    id, *tasks = arguments.words
    work = require_work(id, "show")
    old, new = asyncio.run(_find_range(work, *tasks))
    if arguments.has("--json"):
        put(json_line(asyncio.run(_describe(work, old, new, *tasks))))
        return ExitCode.DONE
    text = asyncio.run(work.repository.git(*_DIFF, old, new))
    if not text:
        tell(f"{f'Task {tasks[0]}' if tasks else f'Run {work.short}'} has changed nothing")
    elif os.isatty(STDOUT):
        _show(text, asyncio.run(_find_pager(work)))
    else:
        put_bytes(text.encode("utf-8", "surrogateescape"))
    return ExitCode.DONE


async def _find_range(work: RunWork, task: str | None = None) -> tuple[str, str]:
    """Return the commits before and after the change."""
    if task is not None:
        landed = require_landed(work, task)
        return landed.base, landed.commit
    tip = await work.find_tip() or work.branch.tip
    if not await work.repository.has_commit(tip):
        raise CliError(f"The branch {work.name} and its commits are gone from {work.branch.root}")
    return work.branch.first, tip


async def _describe(work: RunWork, old: str, new: str, task: str | None = None) -> dict[str, Any]:
    files: list[dict[str, Any]] = []
    listed = await work.repository.git("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", old, new)
    for entry in split(listed):
        added, removed, path = entry.split("\t", 2)
        is_text = added != "-"
        files.append(
            {
                "path": readable(path),
                "added": int(added) if is_text else None,
                "removed": int(removed) if is_text else None,
            }
        )
    text = await work.repository.git(*_DIFF, old, new)
    return {"run": work.id, "task": task, "from": old, "to": new, "files": files, "diff": readable(text)}


async def _find_pager(work: RunWork) -> str:
    """Return the user's pager, as git finds it; the repository's settings do not count."""
    pager = os.environ.get("GIT_PAGER")
    if pager is None:
        pager = await users_setting(work.repository, "core.pager") or os.environ.get("PAGER")
    return "less" if pager is None else pager


def _show(diff: str, pager: str) -> None:
    """Show a diff on the terminal; without a pager only print it."""
    text = harmless(diff)
    if not os.environ.get("NO_COLOR"):
        text = "\n".join(_coloured(text))
    if pager in ("", "cat"):
        put(text)
        return
    # Ctrl+C is for the pager. A handler, because an ignored signal would be ignored in
    # the pager too.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", pager],
            input=text.encode("utf-8", "replace"),
            env={**_PAGER_SETTINGS, **os.environ},
            check=False,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    if done.returncode == _NOT_FOUND:
        put(text)


def _coloured(diff: str) -> Iterator[str]:
    """Return the lines of a diff with colours for a terminal."""
    is_header = True
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            is_header = True
        elif line.startswith("@@"):
            is_header = False
        colour = _BOLD if is_header else _COLOURS.get(line[:1], "")
        yield f"{colour}{line}{_RESET}" if colour and line else line
