"""Works that merge at the same time: they are checked together, and land one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from atomic.workspaces import Conflict, Landed, RunWorkspaces, Work
from tests.support.waits import HANG, eventually
from tests.workspaces.test_run_workspaces import BRANCH, Run, do


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


class Checks:
    """A check of each work that waits until its result is given; empty means green."""

    def __init__(self, run: Run, spaces: RunWorkspaces) -> None:
        self._run = run
        self._spaces = spaces
        self._results: dict[str, asyncio.Future[str]] = {}
        self.seen: list[tuple[str, list[str]]] = []  # each check: the work and the files of the commit

    def start(self, *works: Work) -> list[asyncio.Task[Landed | Conflict | str]]:
        return [asyncio.create_task(self._merge(work, order)) for order, work in enumerate(works)]

    async def _merge(self, work: Work, order: int) -> Landed | Conflict | str:
        async def check(commit: str) -> str | None:
            files = self._run.git("ls-tree", "--name-only", commit).split()
            self.seen.append((work.name, [name for name in files if name != "a.txt"]))
            return await self._result(work.name) or None

        async with asyncio.timeout(HANG):
            return await self._spaces.merge(work, order=order, check=check)

    def _result(self, name: str) -> asyncio.Future[str]:
        return self._results.setdefault(name, asyncio.get_running_loop().create_future())

    def end(self, name: str, result: str = "") -> None:
        self._result(name).set_result(result)

    def ended(self, name: str, error: Exception) -> None:
        self._result(name).set_exception(error)


async def works_of(run: Run, *names: str, file: str = "") -> tuple[RunWorkspaces, list[Work]]:
    spaces = run.started()
    await spaces.begin("auto")
    return spaces, [await do(spaces, name, f"echo {name} > {file or f'{name}.txt'}") for name in names]


async def test_checks_run_at_the_same_time_and_the_branch_moves_in_the_order_of_the_list(run: Run) -> None:
    spaces, works = await works_of(run, "one", "two", "three")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 3)
    assert checks.seen == [
        ("one", ["one.txt"]),
        ("two", ["one.txt", "two.txt"]),
        ("three", ["one.txt", "three.txt", "two.txt"]),
    ]
    checks.end("three")
    checks.end("two")
    assert run.subjects == []
    checks.end("one")
    assert all(isinstance(merged, Landed) for merged in await asyncio.gather(*merges))
    assert run.subjects == ["Do three", "Do two", "Do one"]
    assert [landed.task for landed in spaces.required_branch.landed] == ["one", "two", "three"]


async def test_a_red_work_leaves_and_those_on_top_of_it_are_put_together_and_checked_without_it(run: Run) -> None:
    spaces, works = await works_of(run, "one", "two")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 2)
    checks.end("two")
    checks.end("one", "red")
    assert (await asyncio.gather(*merges))[0] == "red"
    assert checks.seen[2:] == [("two", ["two.txt"])]
    assert run.git("ls-tree", "--name-only", BRANCH).split() == ["a.txt", "two.txt"]


@pytest.mark.ci
async def test_what_is_red_on_top_of_a_red_work_is_checked_again(run: Run) -> None:
    """It may be red because of the other one."""
    spaces, works = await works_of(run, "one", "two")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 2)
    checks.end("two", "red")
    checks.end("one", "red")
    assert await asyncio.gather(*merges) == ["red", "red"]
    assert checks.seen[2:] == [("two", ["two.txt"])]
    assert run.subjects == []


@pytest.mark.parametrize("result", [pytest.param("", marks=pytest.mark.ci), "red"], ids=["green", "red"])
async def test_a_conflict_counts_only_if_the_other_work_lands(run: Run, result: str) -> None:
    spaces, works = await works_of(run, "one", "two", file="a.txt")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 1)
    checks.end("two")
    checks.end("one", result)
    one, two = await asyncio.gather(*merges)
    assert (one == "red", isinstance(two, Conflict)) == (bool(result), not result)
    assert run.git("show", f"{BRANCH}:a.txt") == ("two" if result else "one")


@pytest.mark.ci
async def test_a_check_that_cannot_run_or_is_stopped_does_not_hold_the_others(run: Run) -> None:
    spaces, works = await works_of(run, "one", "two", "three")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 3)
    checks.end("three")
    checks.ended("one", OSError("no room"))
    merges[1].cancel()
    failed, stopped, merged = await asyncio.gather(*merges, return_exceptions=True)
    assert isinstance(failed, OSError)
    assert isinstance(stopped, asyncio.CancelledError)
    assert isinstance(merged, Landed)
    assert run.subjects == ["Do three"]


@pytest.mark.ci
async def test_a_commit_that_the_user_adds_meanwhile_stays_below(run: Run) -> None:
    spaces, works = await works_of(run, "one", "two")
    checks = Checks(run, spaces)
    merges = checks.start(*works)
    await eventually(lambda: len(checks.seen) == 2)
    own = run.git("commit-tree", "-p", BRANCH, "-m", "Own", "main^{tree}")
    run.git("update-ref", f"refs/heads/{BRANCH}", own)
    checks.end("one")
    checks.end("two")
    assert all(isinstance(merged, Landed) for merged in await asyncio.gather(*merges))
    assert sorted(run.subjects) == ["Do one", "Do two", "Own"]
    assert run.subjects[-1] == "Own"
