"""Workspaces: how much faster four workers are, and what a copy of a big project costs.

These are wall times. A turn of a scripted agent takes ten seconds and a check a third
of one, in place of the minutes of a real agent: that makes the cost of workspaces,
checks and merges count for more, not less.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from bodies import expect
from environments import ROOT
from measure import Metrics

from atomic.git import Repository, find_repository
from atomic.workspaces import (
    Base,
    Isolation,
    IsolationKind,
    Workspace,
    choose_isolation,
    find_contents,
    prepare_base,
)

sys.path.insert(0, str(ROOT))
from tests.ralph.sandbox import Sandbox, worker

TASKS = 8
WORKERS = 4
TURN_SECONDS = 10
CHECK = "sleep 0.3 && test -f README.md"

FILES = 50_000
FOLDERS = 500
DEPENDENCIES = 20_000
DEPENDENCY_BYTES = 50_000  # of each: 1 GB in all
BRANCH = "atomic/bench"


def workers(folder: Path, _: Any) -> Metrics:
    """Run eight independent tasks with one worker and with four."""
    return {
        "one_worker": {"auto": _run_tasks(folder / "one", 1) * 1e3},
        "four_workers": {"auto": _run_tasks(folder / "four", WORKERS) * 1e3},
    }


def _run_tasks(folder: Path, count: int) -> float:
    """Return the seconds from the start of the command to its end."""
    folder.mkdir()
    sandbox = Sandbox(folder, *(_part(str(number)) for number in range(TASKS)), isolate="auto")
    tasks = [{"id": str(number), "title": f"Write part {number}"} for number in range(TASKS)]
    listed = folder / "tasks.json"
    listed.write_text(json.dumps({"tasks": tasks}))
    words = ("--tasks", str(listed), "--verify", CHECK, "--workers", str(count), "--review-rounds", "0")
    start = perf_counter()
    done = asyncio.run(sandbox.ralph(*words))
    seconds = perf_counter() - start
    expect(done.status, ("completed", "done", 0))
    expect(len(sandbox.prompts), TASKS)
    return seconds


def _part(task: str) -> dict[str, Any]:
    name = f"part{task}.txt"
    steps = ({"pause": TURN_SECONDS}, {"write": {name: task}}, {"sh": f"git add {name} && git commit -qm {name}"})
    return worker(task, *steps)


def setup(folder: Path, _: Any) -> Metrics:
    """Set up workspaces of a big project, of each kind."""
    _make_project(folder / "project")
    return asyncio.run(_set_up(folder))


def _make_project(project: Path) -> None:
    """Write a repository with 50,000 files, and 1 GB of dependencies that it ignores."""
    for number in range(FILES):
        path = project / f"src{number % FOLDERS}" / f"file{number}.txt"
        if number < FOLDERS:
            path.parent.mkdir(parents=True)
        path.write_text(f"file {number}\n" * 20)
    (project / ".gitignore").write_text("node_modules/\n")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), _COMMIT):
        subprocess.run(("git", *command), cwd=project, check=True)
    content = os.urandom(DEPENDENCY_BYTES)
    for number in range(DEPENDENCIES):
        path = project / "node_modules" / f"package{number // 100}" / f"{number}.js"
        if number % 100 == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(content)


_COMMIT = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-q", "-m", "first")


def _commit_more(project: Path) -> None:
    (project / "merged.txt").write_text("of another task")
    for command in (("add", "merged.txt"), _COMMIT):
        subprocess.run(("git", *command), cwd=project, check=True)


async def _set_up(folder: Path) -> Metrics:
    repository = find_repository(folder / "project")
    assert repository is not None
    overlay = await choose_isolation("overlay", folder / "home", repository.root)
    commit, _ = await repository.head()
    assert commit is not None
    start = perf_counter()
    contents = await find_contents(repository)
    base = await prepare_base(repository, folder / "home" / "base", commit, BRANCH, contents)
    metrics: Metrics = {"setup_base": {"once": (perf_counter() - start) * 1e3}}
    await asyncio.to_thread(_commit_more, repository.root)
    tip, _ = await repository.head()
    assert tip is not None
    for isolation in (overlay, Isolation(IsolationKind.CLONE)):
        metrics |= await _create(repository, base, isolation, tip)
    return metrics


async def _create(repository: Repository, base: Base, isolation: Isolation, tip: str) -> Metrics:
    """Measure the time until the first program runs in a workspace of a later commit."""
    workspace = Workspace(base, base.folder.with_name(str(isolation.kind)), isolation)
    start = perf_counter()
    await workspace.create(repository, tip, branch=BRANCH)
    async with workspace.open() as view:
        await view.run("true")
        seconds = perf_counter() - start
        done = await view.run("git", "status", "--porcelain")
        seen = await view.run("sh", "-c", "ls node_modules | wc -l")
    expect((done.stdout, seen.stdout.strip()), ("", str(DEPENDENCIES // 100)))
    used = sum(path.lstat().st_blocks * 512 for path in workspace.folder.rglob("*"))
    await workspace.remove()
    return {f"setup_{isolation.kind}": {"one": seconds * 1e3}, f"setup_{isolation.kind}_bytes": {"one": float(used)}}


JOBS: dict[str, Callable[[Path, Any], Metrics]] = {"workers": workers, "workspace": setup}
