"""Runs that an older version has made are listed, shown, exported and continued."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.old_formats.place import HERE, Json, Place, expectations, missing, unpack

QUICK = ("killed-work", "killed-map", "two-questions", "sdk-journal")  # the others are run by `make test-ci`
ALONE = ("killed-work", "killed-check", "killed-map", "usage-limit", "capped-iterations", "capped-cost")
ALL = expectations("runs")
SESSIONS = {name: expected for name, expected in ALL.items() if "id" in expected}


def old(names: Any) -> Any:
    """Parametrize a test with fixtures; those that are not quick are for `make test-ci`."""
    marks = {name: [] if name in QUICK else [pytest.mark.ci] for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks[name]) for name in names])


def place_of(name: str, folder: Path) -> Place:
    return unpack(HERE / "runs" / f"{name}.tar.gz", folder)


def events(done: subprocess.CompletedProcess[str]) -> list[Json]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_there_are_twenty_of_them() -> None:
    assert len(ALL) >= 20
    assert {path.name.removesuffix(".tar.gz") for path in (HERE / "runs").glob("*.tar.gz")} == ALL.keys()


def test_all_are_listed_together(tmp_path: Path) -> None:
    """The sessions of all fixtures in one home folder, as somebody has them who has used Atomic for long."""
    everyone = Place(tmp_path / "everyone")
    for name, expected in SESSIONS.items():
        place = place_of(name, tmp_path)
        shutil.copytree(place.session(expected["id"]), everyone.session(expected["id"]))
    listed: list[Json] = json.loads(everyone.atomic("sessions", "list", "--json").stdout)
    found = {record["id"]: (record["status"], record["workflow"] != "") for record in listed}
    assert found == {expected["id"]: (expected["status"], True) for expected in SESSIONS.values()}
    for status in ("completed", "interrupted", "cancelled"):
        shown = everyone.atomic("sessions", "list", "--status", status).stdout
        ids = {expected["id"][:8] for expected in SESSIONS.values() if expected["status"] == status}
        assert {line.split()[0] for line in shown.splitlines() if line.split()[0] in ids} == ids


@old(SESSIONS)
def test_an_old_run_is_shown_as_before(tmp_path: Path, name: str) -> None:
    expected = SESSIONS[name]
    place = place_of(name, tmp_path)
    before = json.loads((place.root / "shown.json").read_text())
    shown = json.loads(place.atomic("sessions", "show", expected["id"], "--json").stdout)
    if shown["status"] == "interrupted":  # the journal also has the calls that session.json had not counted yet
        counted = before.pop("cost")
        assert shown["cost"]["output_tokens"] >= counted["output_tokens"]
    steps = before.pop("steps")  # new versions also show a step that was cut off
    ids = {step["step_id"] for step in steps}
    assert missing({"steps": steps}, {"steps": [step for step in shown["steps"] if step["step_id"] in ids]}) == []
    assert missing(before, shown) == []
    for words in (("show",), ("show", "--html", "page.html"), ("report",)):
        done = place.atomic("sessions", words[0], expected["id"], *words[1:])
        assert (done.returncode, done.stderr) == (0, "")
    assert before["prompt"] in (place.project / "page.html").read_text()
    done = place.atomic("sessions", "export", expected["id"], "all.tar.gz")
    assert done.returncode == 0, done.stderr
    with tarfile.open(place.project / "all.tar.gz") as archive:
        names = {Path(member).name for member in archive.getnames()}
    assert {"session.json", "journal.db", "events.jsonl"} <= names


@old(SESSIONS)
def test_an_old_run_continues(tmp_path: Path, name: str) -> None:
    """What was recorded is not done again, and what was not is done."""
    check_continues(SESSIONS[name], place_of(name, tmp_path))


@pytest.mark.ci
@pytest.mark.parametrize("name", ALONE)
def test_an_old_run_continues_from_its_journal_alone(tmp_path: Path, name: str) -> None:
    """All other files of a session are copies for people: a resume writes them again."""
    expected = SESSIONS[name]
    place = place_of(name, tmp_path)
    folder = place.session(expected["id"])
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}
    record = place.record(expected["id"])
    for path in before:
        (folder / path).unlink()
    shutil.rmtree(folder / "logs")
    check_continues(expected, place)
    after = place.record(expected["id"])
    for key in ("workflow", "workflow_path", "project", "cwd", "prompt", "created_at"):
        assert after[key] == record[key]
    assert after["config"].keys() == record["config"].keys()
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*.json")}
    assert names - {"evidence"} == {path.parts[0] for path in before} - {"evidence"}
    assert after["cost"]["input_tokens"] > record["cost"]["input_tokens"]
    for path, data in before.items():
        if path.parent.name == "evidence":  # of tasks that were done
            assert (folder / path).read_bytes() == data
            assert json.loads(data)["commit"][:7] in (folder / "report.md").read_text()
        elif path.name == "iterations.json":
            turns = [call for call in expected["calls"] if call.split()[0] in ("worker", "fixer")]
            assert json.loads((folder / path).read_bytes())["turns"] == json.loads(data)["turns"] + len(turns)
        elif path.name == "gates.json":
            assert json.loads((folder / path).read_bytes())["baseline"] == json.loads(data)["baseline"]


@pytest.mark.ci
def test_an_old_run_knows_the_branch_that_it_worked_on(tmp_path: Path) -> None:
    expected = SESSIONS["stopped-by-ctrl-c"]
    place = place_of("stopped-by-ctrl-c", tmp_path)
    calls = len(place.calls)
    place.git("switch", "-q", "-c", "another")
    done = place.atomic("resume", expected["id"])
    assert (done.returncode, place.record(expected["id"])["reason"]) == (5, "branch_changed"), done.stderr
    assert len(place.calls) == calls


def check_continues(expected: Json, place: Place) -> None:
    for file, text in expected["before"].items():
        (place.root / file).write_text(text)
    calls = place.calls
    ledger = place.ledger
    may_tell_events = expected["words"][0] in ("resume", "answer")
    done = place.atomic(*expected["words"], *(("--json",) if may_tell_events else ()))
    assert done.returncode == expected["exit_code"], (done.stdout[-2000:], done.stderr)
    assert sorted(place.calls[len(calls) :]) == sorted(expected["calls"])
    assert place.ledger[len(ledger) :] == expected["ledger"]
    assert {file: place.text(file) for file in expected["files"]} == expected["files"]
    record = place.record(expected["id"])
    if expected["end"] is None:
        assert record["status"] == expected["status"]
        return
    assert [record["status"], record["reason"]] == expected["end"]
    told = events(done)
    if expected["status"] != "completed":
        assert [told[0]["type"], told[0]["resumed"]] == ["run_started", True]
        assert [told[-1]["type"], told[-1]["status"], told[-1]["reason"]] == ["run_ended", *expected["end"]]
        assert told[-1]["verified"] == expected.get("verified", told[-1]["verified"])
    check_facts(expected, place)
    again = place.atomic("resume", expected["id"])
    assert (again.returncode, len(place.calls)) == (0, len(calls) + len(expected["calls"]))


def check_facts(expected: Json, place: Place) -> None:
    folder = place.session(expected["id"])
    if "tasks" in expected:
        tasks = json.loads((folder / "tasks.json").read_text())["tasks"]
        assert [task["status"] for task in tasks] == ["completed"] * expected["tasks"]
    if "evidence" in expected:
        assert sorted(path.stem for path in (folder / "evidence").iterdir()) == expected["evidence"]
    if "cost" in expected:
        assert place.record(expected["id"])["cost"]["usd"] == pytest.approx(expected["cost"])


@old([name for name in ALL if name not in SESSIONS])
def test_an_old_journal_continues_without_a_session(tmp_path: Path, name: str) -> None:
    expected = ALL[name]
    place = place_of(name, tmp_path)
    for file, text in expected["before"].items():
        (place.root / file).write_text(text)
    ledger = place.ledger
    done = place.python("flow.py", "resume")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    runs = dict(line.split("\t")[:2] for line in lines if "\t" in line)
    assert expected["runs"].items() <= runs.items()
    assert [line for line in lines if "\t" not in line] == expected["printed"]
    assert place.ledger[len(ledger) :] == expected["ledger"]
