"""The logs of a session: all lines whole, no secret in them, not even one that came in two pieces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.base.redaction import Redactor
from atomic.sessions.logs import SessionLogs

SECRET = "Xq7-very-secret-value"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def activity(text: str, node: str = "n", **more: Any) -> Mapping[str, Any]:
    event = {"type": "text_delta", "text": text, "agent": None, **more}
    return {"type": "agent_activity", "run": "r", "seq": 0, "time": 1.0, "node": node, "task": None, "role": None,
            "event": event}  # fmt: skip


def logged(folder: Path, lines: Iterable[Mapping[str, Any]]) -> list[Any]:
    logs = SessionLogs(folder, Redactor([SECRET]))
    for line in lines:
        logs.event(line)
    logs.close()
    assert logs.failure is None
    return [msgspec.json.decode(line) for line in logs.events.read_bytes().splitlines()]


def said(lines: list[Any], node: str = "n") -> str:
    return "".join(line["event"]["text"] for line in lines if line.get("node") == node)


def test_words_are_joined_to_lines_and_numbered(folder: Path) -> None:
    lines = logged(folder, [activity(piece) for piece in ("one ", "two\nthr", "ee\n", "four")])
    assert [line["event"]["text"] for line in lines] == ["one two\n", "three\n", "four"]
    assert [line["seq"] for line in lines] == [1, 2, 3]


@given(cuts=st.lists(st.integers(0, 200), max_size=8), secret=st.sampled_from([SECRET, "ghp_" + "a1B2" * 8, KEY]))
def test_a_secret_in_pieces_is_found(tmp_path_factory: pytest.TempPathFactory, cuts: list[int], secret: str) -> None:
    folder = tmp_path_factory.mktemp("session")
    (folder / "logs").mkdir()
    text = f"look: {secret} and go on\nthe end"
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(places)]
    other = [activity("something else ", node="m") for _ in pieces]
    lines = logged(folder, [line for pair in zip(map(activity, pieces), other, strict=True) for line in pair])
    assert "MIIEvQIB" not in said(lines)
    assert secret.strip() not in said(lines)
    assert said(lines).endswith("the end")


def test_a_line_without_end_does_not_fill_the_memory(folder: Path) -> None:
    logs = SessionLogs(folder, Redactor([SECRET]))
    for _ in range(100):
        logs.event(activity("x" * 5000 + SECRET[:5]))
        logs.event(activity(SECRET[5:]))
    assert logs.events.stat().st_size > 300_000
    logs.close()
    assert SECRET.encode() not in logs.events.read_bytes()


def test_the_end_of_a_turn_is_logged_after_its_text(folder: Path) -> None:
    ended = {**activity(""), "event": {"type": "turn_ended", "reason": "done", "text": SECRET, "agent": None}}
    lines = logged(folder, [activity("almost"), ended])
    assert [line["event"]["type"] for line in lines] == ["text_delta", "turn_ended"]
    assert lines[1]["event"]["text"] == "[redacted]"


def test_the_last_text_of_a_sub_agent_comes_before_its_end(folder: Path) -> None:
    ended = activity("", type="subagent_ended", id="s1")
    turn_ended = activity("", type="turn_ended")
    words = [activity("I am first.", agent="s1"), activity("I am second.", agent="s2"), activity("We begin.")]
    lines = logged(folder, [*words, ended, turn_ended])
    assert [(line["event"]["type"], line["event"]["text"]) for line in lines] == [
        ("text_delta", "I am first."),
        ("text_delta", "We begin."),
        ("subagent_ended", ""),
        ("text_delta", "I am second."),
        ("turn_ended", ""),
    ]


def test_a_line_that_a_kill_has_cut_is_ended_first(folder: Path) -> None:
    (folder / "logs" / "events.jsonl").write_bytes(b'{"type":"warn')
    logs = SessionLogs(folder, Redactor())
    logs.event({"type": "warning", "text": "x"})
    logs.close()
    assert logs.events.read_bytes().splitlines()[0] == b'{"type":"warn'
    assert msgspec.json.decode(logs.events.read_bytes().splitlines()[1])["text"] == "x"


def test_a_log_that_cannot_be_written_is_reported_and_does_not_raise(tmp_path: Path) -> None:
    logs = SessionLogs(tmp_path, Redactor())
    logs.event({"type": "warning", "text": "x"})
    logs.error("something", ValueError("y"))
    assert isinstance(logs.failure, FileNotFoundError)
    logs.close()


def test_errors_and_calls_have_no_secrets(folder: Path) -> None:
    logs = SessionLogs(folder, Redactor([SECRET]))
    logs.call({"prompt": f"take {SECRET}", "usage": None})
    try:
        raise ValueError(f"no {SECRET}")
    except ValueError as error:
        logs.error("it failed", error)
    logs.close()
    for path in (folder / "logs").iterdir():
        assert SECRET.encode() not in path.read_bytes()
    assert "ValueError: no [redacted]" in (folder / "logs" / "errors.log").read_text()
