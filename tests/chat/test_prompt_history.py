"""The prompt history: private, without secrets, this project first."""

from __future__ import annotations

import stat
from pathlib import Path

from atomic.chat.prompt_history import PromptHistory, Walk

SECRET = "sk-ant-api03-abcdefghijklmnop"


def test_history_is_private_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "home" / "history.jsonl"
    PromptHistory(file, "/here").add(f"use {SECRET} please", 1.0)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in file.read_text()
    assert PromptHistory(file, "/here").texts() == ["use [redacted] please"]


def test_texts_of_this_project_come_first(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    for project, text in (("/a", "one"), ("/b", "two"), ("/a", "three"), ("/b", "one")):
        PromptHistory(file, project).add(text, 1.0)

    assert PromptHistory(file, "/a").texts() == ["three", "one", "two"]
    assert PromptHistory(file, "/b").texts() == ["one", "two", "three"]


def test_broken_lines_and_lines_of_a_newer_version_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_bytes(b'{"text": "cut off\n\xff\xfe\n{"text": "good", "project": "/a", "mood": "new"}\n')

    assert PromptHistory(file, "/a").texts() == ["good"]


def test_a_repeated_text_is_kept_once_and_a_blank_one_is_not(tmp_path: Path) -> None:
    history = PromptHistory(tmp_path / "history.jsonl")
    for text in ("same", "same", "  \n"):
        history.add(text, 1.0)

    assert history.texts() == ["same"]


def test_texts_are_remembered_when_the_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = PromptHistory(tmp_path / "file" / "history.jsonl")

    assert "could not be written" in (history.add("text", 1.0) or "")
    assert history.texts() == ["text"]


def test_a_search_matches_texts_with_every_word(tmp_path: Path) -> None:
    history = PromptHistory(None)
    for text in ("fix the login", "fix the tests", "Login page"):
        history.add(text, 1.0)

    assert history.find("login") == ["Login page", "fix the login"]
    assert history.find("fix login") == ["fix the login"]
    assert history.find("nothing") == []


def test_walking_forward_returns_to_the_draft() -> None:
    walk = Walk(["newest", "older"], "draft")

    assert [walk.back(), walk.back(), walk.back()] == ["newest", "older", None]
    assert [walk.forward(), walk.forward(), walk.forward()] == ["newest", "draft", None]
