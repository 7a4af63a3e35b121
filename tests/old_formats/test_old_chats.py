"""Conversations that an older version has kept are listed, shown and continued."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.old_formats.place import HERE, Json, Place, expectations, missing, unpack

QUICK = ("tool-calls", "question-left-open", "cut-in-a-line", "run-started")  # `make test-ci` runs the others too
ALL = expectations("chats")

old = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.ci]) for name in ALL]
)


def place_of(name: str, folder: Path) -> Place:
    return unpack(HERE / "chats" / f"{name}.tar.gz", folder)


def check_order(text: str, parts: list[str]) -> None:
    """Check that all parts are in a text, one after the other."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is not in {text[at:]!r}"
        at = found + len(part)


def test_there_are_twenty_of_them() -> None:
    assert len(ALL) >= 20
    assert {path.name.removesuffix(".tar.gz") for path in (HERE / "chats").glob("*.tar.gz")} == ALL.keys()


def test_all_are_listed_together(tmp_path: Path) -> None:
    everyone = Place(tmp_path / "everyone")
    statuses: dict[str, str] = {}
    for name, expected in ALL.items():
        place = place_of(name, tmp_path)
        for id in expected["sessions"]:
            shutil.copytree(place.session(id), everyone.session(id))
        statuses |= expected["sessions"]
    listed: list[Json] = json.loads(everyone.atomic("sessions", "list", "--json").stdout)
    assert {record["id"]: record["status"] for record in listed} == statuses


@old
def test_an_old_conversation_is_shown_as_before(tmp_path: Path, name: str) -> None:
    expected = ALL[name]
    place = place_of(name, tmp_path)
    before = json.loads((place.root / "shown.json").read_text())
    shown = place.atomic("sessions", "show", expected["id"], "--json")
    assert missing(before, json.loads(shown.stdout)) == []
    done = place.atomic("sessions", "show", expected["id"])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"atomic chat --resume {expected['id']}" in done.stdout
    done = place.atomic("sessions", "export", expected["id"], "all.tar.gz")
    assert done.returncode == 0, done.stderr


@old
def test_an_old_conversation_continues(tmp_path: Path, name: str) -> None:
    expected = ALL[name]
    place = place_of(name, tmp_path)
    id = expected["id"]
    calls = len(place.calls)
    log = place.session(id) / "logs" / "events.jsonl"
    before = log.read_bytes()
    record = place.record(id)
    done = place.atomic("chat", "--plain", "--resume", id, input=f"{expected['say']}\n")
    assert done.returncode == 0, (done.stdout, done.stderr)
    check_order(done.stdout, [*expected["messages"], expected["answer"], f"atomic chat --resume {id}"])
    assert place.calls[calls:] == expected["calls"]
    check_log(before, log.read_bytes(), expected)
    after = place.record(id)
    assert (after["status"], after["prompt"], after["owner"]) == ("chat", record["prompt"], None)
    assert after["config"] == record["config"] | {"provider_session": after["config"]["provider_session"]}
    for key in ("model", "provider_session"):
        assert after["config"][key] == expected.get(key, after["config"][key])


def check_log(before: bytes, after: bytes, expected: Json) -> None:
    """Check that the log keeps its content and that the new turn follows it."""
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines() if line]
    [started] = [line for line in added if line["type"] == "run_started"]
    assert started["prompt"] == expected["say"]
    assert json.dumps(started["run"]).encode() not in before  # a screen shows a run only once
    ends = [line["event"] for line in added if line["type"] == "activity" and line["event"]["type"] == "turn_ended"]
    assert [end["text"] for end in ends] == [expected["answer"]]
