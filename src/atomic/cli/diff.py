"""`atomic diff ID [TASK]`: show what a run, or one of its tasks, has changed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless
from atomic.cli.errors import CliError
from atomic.cli.last_run import is_run
from atomic.cli.run_branches import DISCARDED, RunWork, require_landed, require_work, users_setting
from atomic.cli.streams import STDOUT, json_line, put, put_bytes, readable, tell
from atomic.git.calls import split
from atomic.workspaces.branch_merges import RUN_TRAILER

_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")
_NOT_FOUND = 127  # exit code of a shell
_PAGER_SETTINGS = {"LESS": "FRX", "LV": "-c"}  # as git sets them
_RESET = "\x1b[m"
_BOLD = "\x1b[1m"
_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}


def diff_command(arguments: Arguments) -> int:
    """Print a diff: in the user's pager on a terminal, else as git writes it."""
    *ids, last = arguments.words or [None]
    if not ids and last is not None and is_run(last):  # atomic diff ID, else atomic diff TASK
        ids, last = [last], None
    work = require_work(next(iter(ids), None), "show")
    tasks = [] if last is None else [last]
    parts = asyncio.run(_find_parts(work, *tasks))
    if arguments.has("--json"):
        put(json_line(asyncio.run(_describe(work, parts, *tasks))))
        return ExitCode.DONE
    text = asyncio.run(_diff(work, parts))
    if not text:
        tell(f"{f'Task {tasks[0]}' if tasks else f'Run {work.short}'} has changed nothing")
    elif os.isatty(STDOUT):
        _show(text, asyncio.run(_find_pager(work)))
    else:
        put_bytes(text.encode("utf-8", "surrogateescape"))
    return ExitCode.DONE


async def _find_parts(work: RunWork, task: str | None = None) -> Sequence[tuple[str, str]]:
    """Return the commits before and after the change, or of each part of it."""
    if task is not None:
        return require_landed(work, task).parts
    tip = await work.find_tip()
    if not tip:
        discarded = await work.find_discarded()
        tip = discarded or work.branch.tip
        if not await work.repository.has_commit(tip):
            raise CliError(f"The branch {work.name} and its commits are gone from {work.branch.root}")
        files = f"; atomic salvage {work.short} {DISCARDED} writes its files to a folder" if discarded else ""
        tell(f"the branch {work.name} is gone: git branch {work.name} {tip[:12]} brings it back{files}")
    return [(work.branch.first, await _without_merge(work, tip))]


async def _without_merge(work: RunWork, tip: str) -> str:
    """Return the last commit of the run before `atomic accept --fix` has merged it with
    the user's commits.
    """
    while True:
        said = await work.repository.git("log", "-1", f"--format=%P%n%(trailers:key={RUN_TRAILER},valueonly)", tip)
        parents, _, run = said.partition("\n")
        merged = parents.split()[1:]  # the first commit of a repository has no parent
        if not merged or run.strip() != work.id:
            return tip
        tip = merged[-1]


async def _diff(work: RunWork, parts: Sequence[tuple[str, str]]) -> str:
    return "".join([await work.repository.git(*_DIFF, old, new) for old, new in parts])


async def _describe(work: RunWork, parts: Sequence[tuple[str, str]], task: str | None = None) -> dict[str, Any]:
    counts: dict[str, tuple[int, int] | None] = {}  # None: it is not text
    words = ("diff", "--numstat", "-z", "--no-renames", "--no-ext-diff")
    listed = "".join([await work.repository.git(*words, old, new) for old, new in parts])
    for entry in split(listed):
        added, removed, path = entry.split("\t", 2)
        known = counts.get(path, (0, 0))  # several parts may have changed it
        counts[path] = None
        if known is not None and added != "-":
            counts[path] = known[0] + int(added), known[1] + int(removed)
    files: list[dict[str, Any]] = []
    for path, count in counts.items():
        added, removed = (None, None) if count is None else count
        files.append({"path": readable(path), "added": added, "removed": removed})
    text = await _diff(work, parts)
    return {
        "run": work.id,
        "task": task,
        "from": parts[0][0],
        "to": parts[-1][1],
        "files": files,
        "diff": readable(text),
    }


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
