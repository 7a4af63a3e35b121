"""The journals of the ports: each test runs in memory and on SQLite, like its original."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atomic.workflows import Journal, MemoryJournal, SqliteJournal


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: Any, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryJournal()
        return
    with SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give scripted agents a home folder and a project of their own."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
