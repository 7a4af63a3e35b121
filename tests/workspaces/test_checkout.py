"""Checks in the state of the user's checkout: they see all of it and change none of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from atomic.workspaces import Isolation, IsolationKind, WorkspaceError, open_checkout
from tests.support.repositories import git, new_repository, write
from tests.workspaces.kinds import KINDS, each
from tests.workspaces.places import fingerprint

FILES = {".gitignore": "ignored\ncache/\n", "a.txt": "one\n", "b.txt": "two\n", "sub/c.txt": "three\n"}
USER = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "W",
    "GIT_AUTHOR_EMAIL": "w@example.org",
    "GIT_COMMITTER_NAME": "W",
    "GIT_COMMITTER_EMAIL": "w@example.org",
}
READ = "cat a.txt b.txt untracked ignored; git status --short"
WRITE = """
echo check >> a.txt; rm b.txt; chmod 000 sub/c.txt; touch -d 2001-01-01 untracked; mkdir -p cache/x; echo x > cache/x/y
git add -A && git stash -q -u && git stash pop -q && git commit -qam check && git branch -f other && git tag made
git config user.name Mallory; git gc -q --prune=now
echo 'exit 1' > "$(git rev-parse --git-path hooks/pre-commit)" || true
git reset -q --hard HEAD~1; git clean -fdxq; git update-ref -d refs/stash || true
"""


def make_dirty(project: Path) -> None:
    """Leave work of a user in a checkout: changed, staged, untracked and ignored."""
    write(project, {"a.txt": "changed\n"})
    write(project, {"b.txt": "staged\n"})
    git(project, "add", "b.txt")
    write(project, {"untracked": "untracked\n", "ignored": "ignored\n"})


SEEN = "changed\nstaged\nuntracked\nignored\n M a.txt\nM  b.txt\n?? untracked\n"


async def look(project: Path, layer: Path, isolation: Isolation, script: str) -> str:
    async with open_checkout(project, layer, isolation) as view:
        done = await view.run("sh", "-ec", script, env=USER)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_a_check_sees_the_dirty_checkout_and_changes_nothing(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    make_dirty(project)
    before = fingerprint(project)
    assert await look(project, tmp_path / "layer", isolation, READ) == SEEN
    await look(project, tmp_path / "layer", isolation, WRITE)
    assert fingerprint(project) == before
    assert not (tmp_path / "layer").exists()
    assert await look(project, tmp_path / "layer", isolation, READ) == SEEN


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_the_repository_of_a_linked_worktree_is_untouched(tmp_path: Path, isolation: Isolation) -> None:
    main = new_repository(tmp_path / "main", FILES)
    git(main, "worktree", "add", "-q", "-b", "side", str(tmp_path / "project"))
    make_dirty(tmp_path / "project")
    before = fingerprint(main, tmp_path / "project")
    assert await look(tmp_path / "project", tmp_path / "layer", isolation, READ) == SEEN
    await look(tmp_path / "project", tmp_path / "layer", isolation, WRITE)
    assert fingerprint(main, tmp_path / "project") == before


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_the_repository_around_a_submodule_is_untouched(tmp_path: Path, isolation: Isolation) -> None:
    origin = new_repository(tmp_path / "origin", FILES)
    outer = new_repository(tmp_path / "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "inner")
    make_dirty(outer / "inner")
    before = fingerprint(outer)
    assert await look(outer / "inner", tmp_path / "layer", isolation, READ) == SEEN
    await look(outer / "inner", tmp_path / "layer", isolation, WRITE)
    assert fingerprint(outer) == before


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_a_folder_without_git_can_be_looked_at(tmp_path: Path, isolation: Isolation) -> None:
    write(tmp_path / "project", {"a.txt": "one\n"})
    before = fingerprint(tmp_path / "project")
    assert await look(tmp_path / "project", tmp_path / "layer", isolation, "cat a.txt; rm a.txt; echo x > x") == "one\n"
    assert fingerprint(tmp_path / "project") == before


async def test_a_checkout_with_the_layers_inside_of_it_can_be_copied(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", FILES)
    home = project / "sub" / "home" / "workspaces"
    write(home, {"other/big": "x\n"})
    make_dirty(project)
    isolation = Isolation(IsolationKind.CLONE)
    async with open_checkout(project, home / "run" / "layer", isolation, hidden=[home]) as view:
        done = await view.run("sh", "-c", "cat a.txt sub/c.txt; ls sub sub/home", env=USER)
    assert done.stdout == "changed\nthree\nsub:\nc.txt\nhome\n\nsub/home:\n", done.stderr
    assert (home / "other" / "big").read_text() == "x\n"


async def test_a_copy_that_is_too_big_is_refused(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", FILES)
    with pytest.raises(WorkspaceError, match="--isolate none"):
        async with open_checkout(project, tmp_path / "layer", Isolation(IsolationKind.CLONE), max_size=100):
            pass
    assert not (tmp_path / "layer").exists()


async def test_an_editable_install_leads_to_the_copy(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {".gitignore": ".venv\n", "tiny.py": "print('checkout')\n"})
    write(project, {".venv/tiny.pth": f"{project}\n"})
    before = fingerprint(project)
    script = "import site; site.addsitedir('.venv'); import tiny; print(tiny.__file__)"
    isolation = Isolation(IsolationKind.CLONE)
    said = await look(project, tmp_path / "layer", isolation, f'{sys.executable} -Pc "{script}"')
    assert said == f"checkout\n{tmp_path}/layer/copy/project/tiny.py\n"
    assert fingerprint(project) == before
