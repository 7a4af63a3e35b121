"""Pairs of tasks that get in each other's way: everything is merged, or it is said; no line is lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ralph import intents
from tests.ralph.conflict_pairs import COUNT, Pair, find_losses, make_pair, read_tree
from tests.ralph.sandbox import Outcome, Sandbox, worker

AGAIN = "you begin again on top of theirs"
SEMANTIC = ("symbol", "items")
QUICK = {0}
CI = {5, 6, 10, 12, 14, 18, 20, 21}


def marked(number: int) -> Any:
    marks = [] if number in QUICK else [pytest.mark.ci if number in CI else pytest.mark.full]
    return pytest.param(number, id=f"{number}-{make_pair(number).kind.replace(' ', '-')}", marks=marks)


class PairSandbox(Sandbox):
    """The project of a pair, and a worker for each of its tasks."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        super().__init__(folder, isolate=pair.isolate)
        self.pair = pair
        for path, data in pair.files.items():
            place = self.project / path
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(data)
        self.commit_all("Add the project")
        self.play(*(part for number in (0, 1) for part in self._parts(number)))
        self.tasks = self.user.home / "tasks.json"
        listed = [{"id": str(number + 1), "title": f"Do part {number + 1}"} for number in (0, 1)]
        self.tasks.write_text(json.dumps({"tasks": listed}))

    def _parts(self, number: int) -> list[Mapping[str, Any]]:
        """Return what a worker does: at first, when its work is sent back, and when it begins again."""
        id = str(number + 1)
        file = self.user.home / f"intents-{id}.json"
        pair = self.pair
        given = {
            "intents": pair.tasks[number].intents,
            "habit": pair.habits[number],
            "solves": pair.solutions[number],
        }
        file.write_text(json.dumps(given))
        command = f"{sys.executable} -I -S {intents.__file__} {file}"
        both = f"touch {self.user.home}/began-{id}; {_waiting(self.user.home, id)}"
        return [
            worker(id, {"sh": f"{command} fresh"}, match=AGAIN),
            worker(id, {"sh": f"{command} unfinished"}, match="in progress"),
            worker(id, {"sh": f"{command} returned"}, match="`atomic-tip`"),
            worker(id, {"sh": both}, {"sh": f"{command} first"}),
        ]

    async def run(self) -> Outcome:
        words = ("--tasks", str(self.tasks), "--workers", "2", "--review-rounds", "0")
        return await self.ralph(*words, "--verify", "python3 check.py")

    @property
    def tip(self) -> str:
        return f"atomic/{self.session.name[:8]}"


def _waiting(home: Path, id: str) -> str:
    """Return a command that waits until the other task has begun too, so that both begin at the same commit."""
    other = "2" if id == "1" else "1"
    return f"for i in $(seq 3000); do test -e {home}/began-{other} && break; sleep 0.02; done"


@pytest.mark.parametrize("number", [marked(number) for number in range(COUNT)])
async def test_no_line_of_two_tasks_is_lost(
    tmp_path: Path, number: int, record_property: Callable[[str, object], None]
) -> None:
    pair = make_pair(number)
    sandbox = PairSandbox(tmp_path, pair)
    done = await sandbox.run()
    ends = [sandbox.statuses[id] for id in "12"]
    record_property("ends", f"{' and '.join(sorted(ends))} after {len(sandbox.callers)} turns: {how(sandbox)}")
    merged = [task for task, end in zip(pair.tasks, ends, strict=True) if end == "completed"]
    assert find_losses(pair, merged, read_tree(sandbox.project, sandbox.tip)) == []
    assert sandbox.git("status", "--porcelain") == ""
    if len(merged) == 2:
        assert done.status == ("completed", "done", 0), done.end
        return
    assert len(merged) == 1
    assert done.status[0] == "blocked", done.end
    # Where git sees no conflict, the report has the output of the check on both together.
    shown = "Together with the work of other tasks" if pair.kind in SEMANTIC else "Both sides of the conflict"
    assert shown in sandbox.report


def how(sandbox: Sandbox) -> str:
    """Return the longest way that a task of the run went."""
    prompts = [one["prompt"] for one in sandbox.prompts]
    if any(AGAIN in prompt for prompt in prompts):
        return "begun again"
    return "sent back" if len(prompts) > 2 else "clean"
