"""Killed with its agents, Ralph loses nothing, repeats nothing and reports the same."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.torture import ralph_overhead
from tests.torture.ralph import Stage, torture
from tests.torture.ralph_facts import ROUNDS, Entry, Known, Orphans, alive, family, masked

SEED = int(os.environ.get("TORTURE_SEED", "20261116"))


@pytest.mark.ci
def test_a_killed_ralph_loses_nothing_and_repeats_nothing_in_twenty_runs() -> None:
    """A change of the machine's speed can make kills miss; more runs make up for it."""
    hit = 0
    for seed in range(SEED, SEED + 4):
        total = torture(20, seed)
        print(total)
        assert total.clean, f"{total} (seed {seed})"
        hit += total.kills
        if hit >= 20:
            return
    raise AssertionError(f"only {hit} kills hit")


@pytest.mark.ci
@pytest.mark.parametrize("isolate", ["overlay", "clone"])
def test_a_killed_ralph_with_workspaces_loses_nothing_and_leaves_the_checkout_alone(isolate: str) -> None:
    total = torture(4, SEED, isolate=isolate)
    print(total)
    assert total.clean, total


@pytest.mark.full
def test_atomic_itself_uses_less_than_one_percent_of_a_run() -> None:
    assert ralph_overhead.main() == 0


# The counters themselves: their zeros prove something only if they can count.


def test_a_turn_of_a_finished_task_counts_as_repeated() -> None:
    known = Known(completed=frozenset({"t00"}))
    assert known.repeated_by([_begun("worker", "t00", 2), _begun("worker", "t01")]) == ["worker t00 attempt 2"]


def test_a_recorded_turn_counts_as_repeated_and_the_next_attempt_does_not() -> None:
    known = Known(turns=Counter({"t00": 1}), plans=1)
    entries = [_begun("worker", "t00", 1), _begun("worker", "t00", 2), _begun("planner", "", 1)]
    assert known.repeated_by(entries) == ["worker t00 attempt 1", "planner  attempt 1"]


def test_a_recorded_review_counts_as_repeated() -> None:
    ended = [Entry("end", "reviewer", "", 1, 1)] * 2
    assert Known(reviews=0).repeated_by(ended) == []
    assert Known(reviews=1).repeated_by(ended) == ["reviewer"]


def test_a_review_that_atomic_never_got_does_not_count_as_repeated() -> None:
    ended = [Entry("end", "reviewer", "", 1, 11), Entry("end", "reviewer", "", 1, 12)]
    assert Known(reviews=1).repeated_by(ended, unheard={11}) == []
    assert Known(reviews=1).repeated_by(ended, unheard={99}) == ["reviewer"]


@pytest.mark.ci
@pytest.mark.parametrize(("moment", "again"), [("before", 1), ("after", 0)])
def test_a_review_is_repeated_only_if_its_answer_was_lost(tmp_path: Path, moment: str, again: int) -> None:
    """The agent dies between its "end" in the ledger and its answer, or after its answer."""
    stage = Stage(tmp_path.resolve())
    stage.ledger.path.with_name(f"{stage.ledger.path.name}.die").write_text(f"reviewer {moment}")
    done = subprocess.run(stage.next_command(), cwd=stage.project, env=stage.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    reviews = [entry for entry in stage.ledger.since(0) if (entry.role, entry.what) == ("reviewer", "end")]
    assert (len(reviews), Known.of(stage.session).reviews) == (ROUNDS + again, ROUNDS)
    assert Known().repeated_by(reviews, unheard={reviews[0].agent} if again else ()) == []


def test_a_process_that_outlives_its_time_is_an_orphan(tmp_path: Path) -> None:
    orphans = Orphans(patience=0.2)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "HOME": str(tmp_path)}) as sleeper:
        orphans.expect_end_of(family(tmp_path))
        assert orphans.left() == [sleeper.pid]
        sleeper.kill()
    assert orphans.left() == []
    assert alive(sleeper.pid) is None


def test_two_reports_differ_where_the_work_does(tmp_path: Path) -> None:
    report = f"# Ralph completed\n\n- `make` passed (exit code 0, 0.1s)\n- in `{tmp_path}` since {'a' * 40}\n"
    quicker = report.replace("0.1s", "0.0s").replace("a" * 40, "b" * 40).replace(str(tmp_path), str(tmp_path / "b"))
    assert masked(report, tmp_path) == masked(quicker, tmp_path / "b")
    assert masked(report, tmp_path) != masked(report.replace("passed", "failed"), tmp_path)


def _begun(role: str, task: str, attempt: int = 1) -> Entry:
    return Entry("begin", role, task, attempt, 1)
