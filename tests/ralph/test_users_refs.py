"""The user's refs are not taken for lost while git itself rewrites its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atomic.git import Repository, find_repository, read_refs
from atomic.ralph.users_refs import UsersRefs
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, facts_in, worker, writing
from tests.support.repositories import git, new_repository

BRANCH = "refs/heads/main"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return a repository whose branch and tag are loose files."""
    folder = new_repository(tmp_path / "project", {"a": "1"})
    git(folder, "branch", "-M", "main")
    git(folder, "branch", "mine")
    git(folder, "tag", "v1")
    found = find_repository(folder)
    assert found is not None
    return found


async def test_refs_that_are_packed_while_they_are_read_are_not_lost(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = UsersRefs(facts_in(tmp_path))
    walk = os.walk
    await refs.begin(repository, BRANCH)

    def pack_then_walk(*words: Any) -> Iterator[Any]:
        git(repository.root, "pack-refs", "--all", "--prune")
        return walk(*words)

    monkeypatch.setattr(os, "walk", pack_then_walk)
    found = dict((await read_refs(repository)).refs)
    assert list(found) == [BRANCH, "refs/heads/mine", "refs/tags/v1"]
    assert await refs.end(repository, "1", BRANCH) == []


async def test_a_ref_is_lost_only_if_a_second_read_misses_it_too(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = UsersRefs(facts_in(tmp_path))
    walk = os.walk
    walked = list[str]()
    await refs.begin(repository, BRANCH)

    def miss_once(top: Path) -> Iterator[Any]:
        is_first = str(top) not in walked
        walked.append(str(top))
        return iter(()) if is_first else walk(top)

    monkeypatch.setattr(os, "walk", miss_once)
    assert await refs.end(repository, "1", BRANCH) == []
    git(repository.root, "branch", "-D", "mine")
    assert [one.said for one in await refs.end(repository, "1", BRANCH)] == ["the branch mine was deleted"]


async def test_a_lock_file_of_git_is_not_a_branch(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    lock = sandbox.project / ".git" / "refs" / "heads" / "mine.lock"
    first = worker("1", {"write": {"part1.txt": "1\n"}}, {"sh": f"rm -f {lock}"}, {"alone": "git add part1.txt"})
    sandbox.play(PLAN, first, writing("2"), APPROVE)
    lock.write_text(sandbox.git("rev-parse", "HEAD") + "\n")
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "mine.lock" not in outcome.warnings + sandbox.report
    assert sandbox.callers.count("worker 1 2") == 0
