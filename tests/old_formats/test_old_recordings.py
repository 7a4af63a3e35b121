"""Recordings that an older version has made are played, and agents are replaced by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.old_formats.place import HERE, MADE_BELOW, Json, Place, expectations, unpack

ALL = expectations("recordings")


def place_of(name: str, folder: Path) -> Place:
    return unpack(HERE / "recordings" / f"{name}.tar.gz", folder)


def check_project(place: Place, expected: Json) -> None:
    assert {file: place.text(file) for file in expected["files"]} == expected["files"]
    if expected["head"]:
        assert place.git("rev-parse", "HEAD") == expected["head"]


@pytest.mark.parametrize("name", ALL)
def test_an_old_recording_is_played(tmp_path: Path, name: str) -> None:
    expected = ALL[name]
    place = place_of(name, tmp_path)
    done = place.atomic("replay", "../run.jsonl", "--json", "--speed", "max")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [event for event in events if event["type"] == "turn_ended"]
    assert (len(ends), {event["reason"] for event in ends}) == (expected["calls"], {"done"})
    assert [event["text"] for event in ends if event["text"] in expected["texts"]] == expected["texts"]
    check_project(place, expected)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.ci] if name == "of-a-run" else []) for name in ALL]
)
def test_an_old_recording_takes_the_place_of_an_agent(tmp_path: Path, name: str) -> None:
    expected = ALL[name]
    place = place_of(name, tmp_path)
    words = [word.replace(str(MADE_BELOW / name), str(place.root)) for word in expected["words"]]
    if "ralph" in words:  # the old version knew only the checkout
        words.insert(words.index("ralph") + 1, "--isolate=none")
    done = place.atomic(*words)
    assert done.returncode == expected["exit_code"], (done.stdout, done.stderr)
    assert all(text in done.stdout for text in expected["said"])
    check_project(place, expected)
    assert place.calls == place_of(name, tmp_path / "untouched").calls
