"""Run the checks on a tree that is known, find checks in a project that had none, and turn red ones into a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import TypeVar

import msgspec

from atomic.git import Picture, find_repository
from atomic.tasks import Task
from atomic.workflows.project_gate import Gate
from atomic.workflows.ralph.checkout import Checkout
from atomic.workflows.ralph.desk import Desk, Ralph
from atomic.workflows.ralph.evidence import GateResult
from atomic.workflows.ralph.gates import NOT_FOUND
from atomic.workflows.ralph.options import project_check
from atomic.workflows.ralph.own_work import beating, is_cache
from atomic.workflows.ralph.prompts import gate_trouble
from atomic.workflows.ralph.state import RalphState
from atomic.workflows.task_loop import COMES_FIRST

ResultT = TypeVar("ResultT")
MOST_RUNS = 3  # of the checks, where files change meanwhile


class Checked(msgspec.Struct, frozen=True):
    """What the checks said, the folder behind them, and the files that changed while they ran."""

    results: Sequence[GateResult]
    after: Picture
    moved: Sequence[str] = ()

    @property
    def red(self) -> list[GateResult]:
        """The checks that hold up a task."""
        return [result for result in self.results if result.blocking and result.exit_code != 0]

    def missing(self, desk: Desk) -> list[GateResult]:
        """The checks that must be green at the end and are not."""
        return [one for one in self.results if one.exit_code != 0 and desk.book.must_pass(one.command)]

    def is_green(self, desk: Desk) -> bool:
        """Return whether checks ran and leave nothing to do. A tree without checks is not green: one may come later."""
        return bool(self.results) and not self.moved and not self.missing(desk)


async def check_tree(desk: Desk, *, now: Picture | None = None, runs: int = 1) -> Checked:
    """Run the checks; where files change meanwhile that checks do not write, again, up to `runs` times in all.

    `now`: a snapshot that the caller has just taken. Only Atomic's own code may have run since.
    """
    while True:
        runs -= 1
        before, now = now or await desk.pictures.take(), None
        results, after = await watch_checks(desk, before, lambda: desk.book.check(desk.cwd, desk.options.gate_timeout))
        moved = await moved_files(desk, before, after)
        if moved and desk.book.is_learning:
            desk.book.note_leftovers(moved)
        known = {*desk.book.leftovers}
        moved = [path for path in moved if path not in known]
        if not moved or runs <= 0:
            return Checked(results, after, moved)


async def watch_checks(
    desk: Desk, before: Picture, checks: Callable[[], Awaitable[ResultT]]
) -> tuple[ResultT, Picture]:
    """Run checks and see that they leave the user's files alone; their result, and the folder after them."""
    checkout = Checkout(desk)
    await checkout.begin_checks(before)
    try:
        with beating(desk.session):
            async with desk.timed("check"):
                result = await checks()
    finally:
        after = await checkout.end_checks(before)
    return result, after


async def moved_files(desk: Desk, before: Picture, after: Picture) -> list[str]:
    """The files that differ, but for caches of Python."""
    return [one.path for one in await desk.pictures.changes(before, after) if not is_cache(one.path)]


def moving(paths: Sequence[str], when: str) -> str:
    """Why a run cannot be completed whose files do not stand still."""
    named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return (
        f"files changed {when}, three times in a row: {named}. They are not the files that were checked and reviewed:"
        " find out which program changes them (a reviewer, a formatter, a server), stop it, and resume"
    )


async def is_known_green(desk: Desk, state: RalphState, now: Picture) -> bool:
    """Whether all checks that count were green on these very files."""
    if now.tree in {picture.tree for picture in state.checked.values()}:
        return True
    start, book = state.start, desk.book
    if start is None or any(
        book.must_pass(gate.command) and book.baseline.get(gate.command) != 0 for gate in book.gates
    ):
        return False
    return not await moved_files(desk, start, now)


# repairs -------------------------------------------------------------------------------------------------------------


def repair_task(desk: Desk, red: Sequence[GateResult]) -> Task:
    """A task for red checks. No other task is begun before it is done."""
    known = {task.id for task in desk.tasks.tasks}  # a list may have a task of such a name
    number = next(number for number in count(1) if f"check-{number}" not in known)
    metadata = {"role": "fixer", "repairs": "checks", "red": said_of(red), COMES_FIRST: True}
    return Task(f"check-{number}", "Make the checks pass", gate_trouble(red), priority=0, metadata=metadata)


def said_of(results: Sequence[GateResult]) -> str:
    """How checks ended, in one line."""
    return "; ".join(f"{one.command} {_ended(one)}" for one in results)


def _ended(result: GateResult) -> str:
    if result.timed_out:
        return "took too long"
    if result.exit_code == NOT_FOUND:
        return f"was not found (exit code {NOT_FOUND})"
    return f"ended with exit code {result.exit_code}"


def is_repair(task: Task) -> bool:
    """Whether a task is there because checks were red, and not because of a finding."""
    return task.metadata.get("repairs") == "checks"


# new projects --------------------------------------------------------------------------------------------------------


async def look_for_check(ctx: Ralph, desk: Desk) -> None:
    """Take the check of a project that had none when the run began."""
    if desk.book.gates:
        return
    found = await asyncio.to_thread(project_check, _project(desk), str(desk.cwd))
    if found is None:
        return
    if not ctx.deps.trusted and not await _is_new(ctx, desk, found):
        if desk.book.refuse(found.command):
            desk.say(
                f"{found.command} ({found.origin}) is not run: that file was there before the run, and nobody has "
                "approved the project (atomic trust); --verify COMMAND gives a check that needs no approval"
            )
        return
    desk.book.add_late(found)
    desk.say(f"check: {found.command} (found in {found.origin}); it must be green at the end")


async def _is_new(ctx: Ralph, desk: Desk, found: Gate) -> bool:
    """Whether the file that brings a check came with this run: agents could have run it themselves."""
    start = ctx.state.start
    assert start is not None  # `prepare` has taken it
    changes = await desk.pictures.changes(start, await desk.pictures.take())
    path = await asyncio.to_thread(_path_of, desk, found)
    return any(one.path == path and one.status == "added" for one in changes)


def _path_of(desk: Desk, found: Gate) -> str:
    """The file that brings a check, from the folder that paths of changes begin at."""
    repository = find_repository(desk.cwd)
    root = desk.cwd if repository is None else repository.root
    return os.path.relpath(os.path.realpath(os.path.join(_project(desk), found.origin)), os.path.realpath(root))


def _project(desk: Desk) -> str:
    return desk.options.project or str(desk.cwd)
