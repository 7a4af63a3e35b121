"""Flags that a resume may change, and the command that a paused run prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atomic.graph.engine.journal import PartBody, Row, RowKind, decode_body, encode_row
from atomic.sessions.journal import SqliteJournal
from tests.ralph.sandbox import (
    APPROVE,
    GOAL,
    PLAN,
    Sandbox,
    finding,
    reviewing,
    with_open_question,
    worker,
    writing,
)
from tests.ralph.test_checks import ATOMIC, PROMISE
from tests.support.terminal import in_terminal

DONE = ("completed", "done", 0)
RED = ("blocked", "check_red", 5)


async def paused(folder: Path) -> Sandbox:
    sandbox = Sandbox(folder, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    return sandbox


@pytest.mark.ci
@pytest.mark.parametrize(
    "words",
    [
        ["--verify", "false"],
        ["--yolo"],
        ["--pr"],
        ["--dry-run"],
        ["--workers", "2"],
        ["--reviewers", "2"],
        ["--tasks", "x.json"],
        ["--gate-timeout", "1s"],
        ["--isolate", "none"],
    ],
    ids=lambda words: words[0],
)
async def test_a_flag_that_a_resume_cannot_change_is_refused(tmp_path: Path, words: list[str]) -> None:
    sandbox = await paused(tmp_path)
    before = (sandbox.session / "session.json").read_bytes()
    outcome = await sandbox.resume("--max-iterations", "9", *words)
    assert outcome.exit_code == 2
    assert f"{words[0]} is set when a run starts, and a resume cannot change it" in outcome.end["message"]
    assert "atomic run ralph" in outcome.end["message"]
    assert len(sandbox.callers) == 2
    assert (sandbox.session / "session.json").read_bytes() == before  # nothing of it is remembered


@pytest.mark.ci
async def test_words_and_numbers_without_effect_are_refused(tmp_path: Path) -> None:
    sandbox = await paused(tmp_path)
    for words, told in (
        (["--red-checks", "maybe"], 'cannot be "maybe": give ignore or goal'),
        (["--red-checks", "ignore"], "this run has begun its work"),
        (["--review-rounds", "0"], "this run was started with reviews"),
    ):
        outcome = await sandbox.resume(*words)
        assert outcome.exit_code == 2, words
        assert told in outcome.end["message"]
    assert (await sandbox.resume("--review-rounds", "5", "--max-iterations", "9")).status == DONE


@pytest.mark.ci
async def test_more_reviews_can_be_allowed(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> part1.txt"}]}
    reviews = [reviewing(finding("one"), times=1), reviewing(finding("two"), times=1), APPROVE]
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), fixer, *reviews)
    assert (await sandbox.ralph("--review-rounds", "1", GOAL)).status == ("blocked", "review_rounds", 5)
    assert (await sandbox.resume("--review-rounds", "2")).status == DONE


@pytest.mark.ci
async def test_the_help_of_resume_names_the_flags_that_work(tmp_path: Path) -> None:
    sandbox = await paused(tmp_path)
    for words in (("resume", "--help"), ("answer", "--help"), ("resume", sandbox.session.name, "--help")):
        done = await sandbox.user.atomic(*words)
        assert done.exit_code == 0
        for flag in ("--max-iterations N", "--red-checks", "--review-rounds N", "--max-cost USD"):
            assert flag in done.stdout
        assert "--verify" not in done.stdout


@pytest.mark.ci
async def test_the_last_line_has_the_flag_that_helps(tmp_path: Path) -> None:
    paid = worker("1", {"cost": 2.0}, {"write": {"part1.txt": "1\n"}})
    sandbox = Sandbox(tmp_path, PLAN, paid, writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-cost", "1.5", GOAL)
    id = sandbox.session.name
    assert outcome.end["resume"].startswith(f"atomic resume {id} --max-cost 4")  # a planner's estimate is in it
    told = await sandbox.user.atomic("resume", id)
    assert told.stderr.splitlines()[-1] == f"Resume with: {outcome.end['resume']}"
    assert (await sandbox.atomic(*outcome.end["resume"].split()[1:], "--json")).status == DONE


@pytest.mark.ci
async def test_the_last_line_at_the_cap_of_turns_raises_it(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert outcome.end["resume"] == f"atomic resume {sandbox.session.name} --max-iterations 2"


@pytest.mark.ci
async def test_the_last_line_names_more_turns_than_are_used(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), reviewing(finding("one")))
    assert (await sandbox.ralph("--max-iterations", "2", GOAL)).status == ("paused", "max_iterations", 6)
    outcome = await sandbox.resume("--max-iterations", "1")
    assert outcome.end["resume"] == f"atomic resume {sandbox.session.name} --max-iterations 3"


@pytest.mark.ci
async def test_a_cancelled_run_offers_no_resume(tmp_path: Path) -> None:
    sandbox = await paused(tmp_path)
    id = sandbox.session.name
    await sandbox.user.atomic("stop", id, "--cancel")
    report = (await sandbox.user.atomic("sessions", "report", id)).stdout
    assert report.startswith("> **This run was cancelled for good (atomic stop --cancel): it cannot be resumed.**")
    assert "To continue" not in report
    shown = (await sandbox.user.atomic("sessions", "show", id)).stdout
    assert "cancelled" in shown
    assert "atomic resume" not in shown


@pytest.mark.ci
async def test_the_last_line_of_a_resumed_run_has_the_cost_of_all_of_it(tmp_path: Path) -> None:
    paid = [{**writing(task), "do": [{"cost": cost}, *writing(task)["do"]]} for task, cost in (("1", 1.6), ("2", 0.9))]
    sandbox = Sandbox(tmp_path, PLAN, *paid, APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    done = await sandbox.user.atomic("resume", sandbox.session.name, "--max-iterations", "9")
    assert done.exit_code == 0, done.stderr
    last = next(line for line in done.stderr.splitlines() if line.startswith("completed after "))
    assert last.endswith(", $2.50")


@pytest.mark.ci
@pytest.mark.parametrize(("check", "flag"), [("test -f part2.txt", " --red-checks goal"), ("pytets -q", "")])
async def test_the_last_line_of_a_red_check_names_the_choices(tmp_path: Path, check: str, flag: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN)
    outcome = await sandbox.ralph("--verify", check, GOAL)
    assert outcome.status == RED
    assert outcome.end["resume"] == f"atomic resume {sandbox.session.name}{flag}"


# Checks


@pytest.mark.ci
@pytest.mark.parametrize(("check", "told"), [("pytets -q", "was not found"), ("./README.md", "could not be executed")])
async def test_a_check_that_cannot_be_run_is_not_a_goal_of_yolo(tmp_path: Path, check: str, told: str) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [PROMISE]})
    outcome = await sandbox.ralph("--yolo", "--verify", check, "make all tests pass")
    assert outcome.status == RED
    assert told in outcome.end["message"]
    assert sandbox.callers == []


@pytest.mark.ci
@pytest.mark.parametrize("word", ["ignore", "goal"])
async def test_a_missing_check_is_reported_to_the_user_who_decides_about_it(tmp_path: Path, word: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--red-checks", word, "--max-iterations", "1", "--verify", "pytets -q", GOAL)
    assert "`pytets -q` was not found (exit code 127): its name may be misspelled" in outcome.warnings


@pytest.mark.ci
@pytest.mark.parametrize("how", ["tasks", "no change", "yolo"])
async def test_a_check_that_stays_red_is_named_with_its_exit_code_and_output(tmp_path: Path, how: str) -> None:
    busy = {"sh": "date +%N >> work.txt"}
    worker_does = {"role": "worker", "do": [busy, PROMISE]}
    fixer = {"role": "fixer", "do": [] if how == "no change" else [busy]}
    sandbox = Sandbox(tmp_path, PLAN, worker_does, fixer, APPROVE)
    flags = ["--yolo"] if how == "yolo" else []
    check = "echo the sum is wrong; exit 3"
    outcome = await sandbox.ralph(*flags, "--red-checks", "goal", "--verify", check, GOAL)
    assert outcome.status == ("blocked", "stuck" if how == "yolo" else "check_red", 5)
    assert f"{check} ended with exit code 3. The report has the end of the output" in outcome.end["message"]
    assert "the sum is wrong" in sandbox.report.replace(check, "")


@pytest.mark.ci
async def test_free_text_does_not_decide_about_a_red_check(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    words = (ATOMIC, "run", "ralph", "--verify", "test -f part2.txt", GOAL)
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("What should the run do?")
        terminal.type("later\n")
        await terminal.shows('"later" is not one of the answers')
        terminal.type("2\n")
        assert await terminal.exit_code() == 0
    assert len(sandbox.callers) == 4


@pytest.mark.ci
async def test_an_answer_from_elsewhere_decides_about_a_red_check(tmp_path: Path) -> None:
    sandbox = await with_open_question(tmp_path)
    id = sandbox.session.name
    record = json.loads((sandbox.session / "session.json").read_text())
    assert record["status"] == "paused"
    outcome = await sandbox.atomic("answer", id, "later", "--json")
    assert outcome.status == ("paused", "question", 5)
    assert '"later" is not one of the answers. Choose one.' in outcome.end["message"]
    assert outcome.end["resume"] == f'atomic answer {id} "ANSWER"'
    assert (await sandbox.atomic("answer", id, "It is the goal", "--json")).status == DONE


def forget_that_it_was_asked(folder: Path) -> None:
    """Make the journal one of an older version, which did not remember that it had asked."""
    path = folder / "journal.db"
    ids = (folder.name, f"{folder.name}/facts")
    with SqliteJournal(path) as journal:
        runs = [(id, journal.history(id)) for id in ids]
    for file in folder.glob("journal.db*"):
        file.unlink()
    with SqliteJournal(path) as journal:
        for id, history in runs:
            log = journal.create(id, encode_row(RowKind.START, history.start))
            kept = [row for row in history.rows if not is_asked_row(row)]
            assert id != folder.name or len(kept) == len(history.rows) - 1
            log.append(kept)


def is_asked_row(row: Row) -> bool:
    return row.kind == RowKind.PART and decode_body(row, PartBody).key == "asked"


@pytest.mark.ci
async def test_the_answer_to_a_red_check_of_an_older_version_decides(tmp_path: Path) -> None:
    sandbox = await with_open_question(tmp_path)
    forget_that_it_was_asked(sandbox.session)
    assert (await sandbox.atomic("answer", sandbox.session.name, "It is the goal", "--json")).status == DONE


@pytest.mark.ci
async def test_attempts_after_a_resume_are_counted_right(tmp_path: Path) -> None:
    lazy = worker("1")
    sandbox = Sandbox(tmp_path, PLAN, lazy)
    first = await sandbox.ralph(GOAL)
    assert first.status == ("blocked", "stuck", 5)
    assert "task 1: attempt 2 of 3 failed" in first.warnings
    again = await sandbox.resume()
    assert "task 1: attempt 4 of 6 failed" in again.warnings
    assert "of 3 failed" not in again.warnings
