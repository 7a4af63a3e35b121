"""A `.git` that is not a repository hides no files above it from git and the agents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from atomic.config import AcpSettings, Settings, find_project, up_to_repository
from atomic.providers import SessionOptions, UntrustedProjectError, require_provider
from tests.hostile.repositories import PROJECTS
from tests.hostile.visit import Visit
from tests.support.entity_files import write
from tests.support.repositories import commit, git, new_repository

FAKES = [name for name in PROJECTS if name.startswith("fake_git")]


@pytest.mark.parametrize("name", FAKES)
@pytest.mark.parametrize("agent", ["opencode", "acp:any"])
async def test_plugins_above_a_fake_repository_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, agent: str
) -> None:
    visit = Visit(tmp_path, name)
    program = visit.user.has("program", "raise SystemExit(3)")
    monkeypatch.setenv("ATOMIC_OPENCODE_PATH", str(program))
    settings = Settings(acp={"any": AcpSettings([str(program)])})
    with pytest.raises(UntrustedProjectError):
        async with require_provider(agent, settings).open(SessionOptions(cwd=visit.place)):
            pass


@pytest.mark.parametrize("name", FAKES)
async def test_trust_shows_files_above_a_fake_repository(tmp_path: Path, name: str) -> None:
    visit = Visit(tmp_path, name)
    shown = json.loads((await visit.user.atomic("trust", "--show", "--json", cwd=visit.place)).stdout)
    assert not shown["trusted"]
    assert any(item["path"].endswith(".opencode/plugin/evil.js") for item in shown["items"])


def _file(text: str) -> Callable[[Path], object]:
    return lambda root: write(root / ".git", text)


def _settings(text: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        git(root, "init", "-q")
        with (root / ".git" / "config").open("a") as file:
            file.write(text)

    return make


def _without(name: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        git(root, "init", "-q")
        (root / ".git" / name).rename(root / "gone")

    return make


def _head(text: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        git(root, "init", "-q")
        (root / ".git" / "HEAD").write_text(text)

    return make


KINDS: dict[str, Callable[[Path], object]] = {
    "none": lambda root: None,
    "empty folder": lambda root: (root / ".git").mkdir(),
    "empty file": _file(""),
    "dangling file": _file("gitdir: /nonexistent\n"),
    "file to itself": _file("gitdir: .git\n"),
    "dangling link": lambda root: (root / ".git").symlink_to("/nonexistent"),
    "repository": lambda root: git(root, "init", "-q"),
    "no HEAD": _without("HEAD"),
    "no objects": _without("objects"),
    "no refs": _without("refs"),
    "wrong HEAD": _head("hello\n"),
    "detached HEAD": _head("0" * 40 + "\n"),
    "version 99": _settings("[core]\n\trepositoryformatversion = 99\n"),
    "extension": _settings("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tevil = true\n"),
    "bare": _settings("[core]\n\tbare = true\n"),
    "bare in one word": _settings("[core]\n\tbare\n"),
    "other root": _settings("[core]\n\tworktree = ../..\n"),
    "broken settings": _settings("[core\n"),
    "open quote": _settings('[a]\n\tb = "c\n'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_folder_is_left_out_that_git_counts_as_part_of_the_repository(tmp_path: Path, kind: str) -> None:
    outer = new_repository(tmp_path / "outer")
    inner = outer / "sub" / "inner"
    inner.mkdir(parents=True)
    KINDS[kind](inner.parent)
    said = git(inner, "rev-parse", "--show-toplevel", check=False).strip()
    root = Path(said) if said else Path("/")  # an agent that git refuses reads every folder
    looked = list(up_to_repository(inner))
    assert root in looked
    if kind in ("none", "repository", "detached HEAD"):
        assert looked[-1] == root
        assert find_project(inner) == root


def test_a_linked_worktree_and_a_submodule_are_repositories(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one")
    git(one, "worktree", "add", "-q", str(tmp_path / "side"))
    other = new_repository(tmp_path / "other")
    git(one, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "module")
    commit(one)
    for root in (tmp_path / "side", one / "module"):
        (root / "deep").mkdir()
        assert find_project(root / "deep") == root
    assert list(up_to_repository(tmp_path / "side" / "deep")) == [tmp_path / "side" / "deep", tmp_path / "side"]


def test_a_repository_of_another_user_is_in_doubt(tmp_path: Path) -> None:
    one = new_repository(tmp_path / "one" / "two")
    if os.getuid() == 0:  # only root can change the owner
        os.chown(one, 12345, 12345)
        assert Path("/") in up_to_repository(one)
