"""Which files above a project must stay as they were when a run began."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomic.ralph.files_above import changed_since, find_files_above


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project in the user's home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "projects" / "project"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["pytest.ini", "package.json", ".eslintrc.json", "node_modules", "projects/.npmrc"])
def test_a_file_that_appears_above_is_found(tmp_path: Path, project: Path, name: str) -> None:
    start = find_files_above([project])
    (tmp_path / name).write_text("new\n")
    assert changed_since(start, [project]) == [str(tmp_path / name)]
    (tmp_path / name).unlink()
    assert changed_since(start, [project]) == []


@pytest.mark.parametrize("name", [".npmrc", ".yarnrc.yml", "tsconfig1234.json", "notes.txt"])
def test_what_a_login_or_another_tool_writes_to_the_home_folder_does_not_count(
    tmp_path: Path, project: Path, name: str
) -> None:
    start = find_files_above([project])
    (tmp_path / name).write_text("new\n")
    assert changed_since(start, [project]) == []


def test_a_file_of_another_user_does_not_count(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = find_files_above([project])
    (tmp_path / "package.json").write_text("{}\n")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)  # the file then belongs to someone else
    assert changed_since(start, [project]) == []
