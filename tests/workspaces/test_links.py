"""Links of a worker's commit: those that lead out of the project are found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from atomic.git import find_repository
from atomic.workspaces.commit_changes import links_outside
from tests.support.repositories import commit, git, new_repository

FILES = {"a.txt": "one\n", "src/b.txt": "two\n"}
# What is there before, what the worker does, and the links that then lead out.
CASES: dict[str, tuple[str, str, list[str]]] = {
    "a link to a file": ("", "ln -s a.txt x; ln -s ../a.txt src/x", []),
    "a link to the folder above": ("", "ln -s ../home x", ["x"]),
    "an absolute link": ("", "ln -s /etc/hosts x", ["x"]),
    "a chain": ("", "mkdir d; ln -s .. d/top; ln -s d/top/../home/good.txt x", ["x"]),
    "a chain that stays": ("", "mkdir d; ln -s .. d/top; ln -s d/top/a.txt x; ln -s d/top/d/../a.txt y", []),
    "a chain over a link to a file": ("", "ln -s src/deep/../../../z x; mkdir src/deep; ln -s x y", ["x", "y"]),
    "a chain to an absolute link": ("", "ln -s / d; ln -s d/etc/hosts x", ["d", "x"]),
    "a circle": ("", "ln -s y x; ln -s x y; ln -s x/../../.. z", []),
    "an old link that leads out now": ("mkdir -p d/in; ln -s d/in/../../a.txt x", "rmdir d/in; ln -s .. d/in", ["x"]),
    "a link of the user": ("ln -s /etc/hosts x", "ln -s a.txt y", []),
    "a changed link of the user": ("ln -s /etc/hosts x", "ln -sf /etc/passwd x", ["x"]),
    "a name that is no text": ("", "ln -s \"$(printf '../\\377\\n')\" x; ln -s \"$(printf '\\377')\" y", ["x"]),
    "no link": ("", "echo two > a.txt", []),
}


@pytest.mark.parametrize("name", CASES)
async def test_links_that_lead_out_are_found(tmp_path: Path, name: str) -> None:
    before, script, expected = CASES[name]
    project = new_repository(tmp_path / "project", FILES)
    subprocess.run(["sh", "-c", before], cwd=project, check=True)
    commit(project, "before")
    old = git(project, "rev-parse", "HEAD").strip()
    subprocess.run(["sh", "-c", script], cwd=project, check=True)
    commit(project, "after")
    repository = find_repository(project)
    assert repository is not None
    assert sorted(await links_outside(repository, old, "HEAD")) == expected
