"""Evidence is kept per task, without secrets."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from atomic.base.redaction import Redactor
from atomic.git import FileChange
from atomic.ralph.evidence import (
    CheckResult,
    Diffstat,
    Evidence,
    diffstat,
    evidence_name,
    read_evidence,
    weakened_checks,
    write_evidence,
)
from atomic.ralph.test_results import RunnerResults
from tests.ralph.sandbox import facts_in

PASSED = CheckResult("make test", 0, 1.5, False, "ab" * 32, "ok\n", 0, True)


def evidence(task: str, *, attempt: int = 1, gate: CheckResult = PASSED) -> Evidence:
    return Evidence(task, attempt, "passed", (gate,), None, "cd" * 20, ("a", "b"), Diffstat(2, 3, 1), ())


def test_evidence_is_read_as_it_was_written_and_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    facts = facts_in(tmp_path)
    write_evidence(facts, evidence("1"))
    write_evidence(facts, evidence("1", attempt=2))
    assert evidence_name(facts, "1") == "evidence/1.json"
    assert read_evidence(facts)["1"].attempt == 2
    data = msgspec.json.decode((tmp_path / "evidence" / "1.json").read_bytes())
    words = "task attempt status gates commit tree changed_files diffstat protected_files"
    assert set(data) == set(words.split())
    words = "command exit_code seconds timed_out output_sha256 output_tail baseline_exit_code blocking"
    assert set(data["gates"][0]) == set(words.split())
    assert set(data["diffstat"]) == {"files", "insertions", "deletions"}
    assert (tmp_path / "evidence").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "evidence" / "1.json").stat().st_mode & 0o777 == 0o600


IDS = ["a/b", "a-b", "a b", "A-b", "../../x", "名前", "größe", "", ".", "..", "line\nbreak", "x" * 300, "x" * 301, "\0"]


@pytest.mark.parametrize("ids", [IDS, IDS[::-1]])
def test_no_task_takes_the_file_of_another_whatever_its_id(tmp_path: Path, ids: list[str]) -> None:
    facts = facts_in(tmp_path)
    for attempt in (1, 2):
        for task in ids:
            write_evidence(facts, evidence(task, attempt=attempt))
    found = read_evidence(facts)
    assert set(found) == set(ids)
    assert {one.attempt for one in found.values()} == {2}
    files = list((tmp_path / "evidence").iterdir())
    assert len(files) == len(ids)
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]
    assert all(set(path.name) <= set(map(chr, range(33, 127))) - set("/\\:*?") for path in files)
    assert (tmp_path / "evidence" / "a-b.json").exists()


def test_secrets_that_a_gate_prints_are_not_kept(tmp_path: Path) -> None:
    gate = msgspec.structs.replace(PASSED, output_tail="found hunter2hunter2 there\n")
    facts = facts_in(tmp_path, Redactor(["hunter2hunter2"]))
    write_evidence(facts, evidence("1", gate=gate))
    assert "hunter2hunter2" not in (tmp_path / "evidence" / "1.json").read_text()
    assert read_evidence(facts)["1"].checks[0].output_tail == "found [redacted] there\n"


def test_the_diffstat_is_the_sum() -> None:
    changes = [FileChange("a", "added", 3, 0), FileChange("b", "modified", 1, 2), FileChange("c", "deleted", 0, 4)]
    assert diffstat(changes) == Diffstat(3, 4, 6)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (RunnerResults("unittest", 3, ()), ""),
        (RunnerResults("unittest", 2, ()), "make test ran 2 tests after task 1, and 3 before the run"),
        (None, "its output does not show which tests ran; 3 ran before the run"),
    ],
)
def test_a_check_that_proves_less_than_before_is_named(now: RunnerResults | None, said: str) -> None:
    """Code that ends the process of the tests with exit code 0 leaves no results."""
    proof = evidence("1", gate=msgspec.structs.replace(PASSED, tests=now))
    found = weakened_checks({"1": proof}, {"make test": RunnerResults("unittest", 3, ())})
    assert len(found) == bool(said)
    assert said in "".join(found)
