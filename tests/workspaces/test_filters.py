"""Repositories whose files are not what git stores: filters, big files, and what a copy cannot have."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.workspaces import Isolation, Workspace
from atomic.workspaces.lfs import keep_objects
from atomic.workspaces.obstacles import find_obstacle, find_twins
from tests.support.repositories import commit, git, new_repository, write
from tests.workspaces.kinds import KINDS, each
from tests.workspaces.places import ADA, BRANCH, REF, Place, shell

UPPER = '[filter "upper"]\n\tclean = tr A-Z a-z\n\tsmudge = tr a-z A-Z\n\trequired = true\n'
# What git-lfs does, as far as git sees it: content in the git folder, pointers in commits.
BIG = """
import hashlib, os, pathlib, subprocess, sys
asked = subprocess.run(["git", "rev-parse", "--absolute-git-dir"], capture_output=True, check=True)
store = pathlib.Path(asked.stdout.decode().strip(), "lfs", "objects")
data = sys.stdin.buffer.read()
if sys.argv[1] == "smudge":
    oid = data.decode().split("sha256:")[1].split()[0]
    sys.stdout.buffer.write((store / oid[:2] / oid[2:4] / oid).read_bytes())
else:
    oid = hashlib.sha256(data).hexdigest()
    path = store / oid[:2] / oid[2:4] / oid
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"version https://git-lfs.github.com/spec/v1\\noid sha256:{oid}\\nsize {len(data)}")
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's own settings of git, which programs in tests use too."""
    file = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(file))
    return file


def filtered(folder: Path, settings: Path, attributes: str, files: dict[str, str]) -> Path:
    """Make a repository with the user's filters."""
    project = folder / "project"
    project.mkdir()
    env = {"GIT_CONFIG_GLOBAL": str(settings)}
    git(project, "init", "-q", "-b", "main")
    write(project, {".gitattributes": attributes, **files})
    git(project, "add", "-A", env=env)
    git(project, "commit", "-q", "-m", "first", env=env)
    return project


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_a_filter_of_the_user_works_in_both_directions(
    tmp_path: Path, settings: Path, isolation: Isolation
) -> None:
    settings.write_text(UPPER)
    project = filtered(tmp_path, settings, "*.up filter=upper\n", {"a.up": "ABC\n", "b.up": "DEF\n"})
    assert git(project, "cat-file", "blob", "HEAD:a.up") == "abc\n"
    place = Place(tmp_path, project, isolation)
    workspace = await place.workspace()
    assert await shell(workspace, "cat a.up b.up; echo NEW > b.up; echo MORE > c.up") == "ABC\nDEF\n"
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("diff", "--name-status", "HEAD", captured.result) == "M\tb.up\nA\tc.up\n"
    assert place.git("cat-file", "blob", f"{captured.result}:c.up") == "more\n"
    assert await shell(await place.workspace("check", captured.result), "cat b.up c.up") == "NEW\nMORE\n"


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_a_filter_that_a_worker_adds_to_the_home_folder_does_not_change_a_check(
    tmp_path: Path, settings: Path, isolation: Isolation
) -> None:
    settings.write_text("")
    place = Place(tmp_path, new_repository(tmp_path / "project"), isolation)
    workspace = await place.workspace()
    await shell(workspace, "echo '*.txt filter=lie' > .gitattributes; echo red > result.txt")
    settings.write_text('[filter "lie"]\n\tsmudge = sed s/red/green/\n')
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert await shell(await place.workspace("check", captured.result), "cat result.txt") == "red\n"


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_big_files_come_into_a_workspace_and_back(tmp_path: Path, settings: Path, isolation: Isolation) -> None:
    program = tmp_path / "big.py"
    program.write_text(BIG)
    command = f"{sys.executable} -S {program}"
    settings.write_text(f'[filter "lfs"]\n\tclean = {command} clean\n\tsmudge = {command} smudge\n\trequired = true\n')
    project = filtered(tmp_path, settings, "*.bin filter=lfs\n", {"a.bin": "first\n", "b.bin": "second\n"})
    place = Place(tmp_path, project, isolation)
    workspace = await place.workspace()
    said = await shell(
        workspace, "cat a.bin; echo own > own.bin; git add own.bin; git commit -qm own; echo loose > b.bin"
    )
    assert said == "first\n"
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    await workspace.remove()
    assert place.git("diff", "--name-status", "HEAD", captured.result) == "M\tb.bin\nA\town.bin\n"
    assert place.git("cat-file", "blob", f"{captured.result}:b.bin").startswith("version https://git-lfs")
    fresh = Workspace(await place.base(), place.run / "check", isolation, hidden=[place.home])
    damage = "find .git/lfs -type f | while read -r file; do echo damaged > $file; done"
    async with fresh.open_new(place.repository, captured.result, branch=BRANCH) as view:
        done = await view.run("sh", "-c", f"cat a.bin b.bin own.bin; git status --short; {damage}")
    assert done.stdout == "first\nloose\nown\n"
    env = {"GIT_CONFIG_GLOBAL": str(settings)}
    git(project, "merge", "-q", captured.result, env=env)
    assert (project / "own.bin").read_text() + (project / "b.bin").read_text() == "own\nloose\n"


async def test_content_that_does_not_fit_its_name_is_not_kept(tmp_path: Path) -> None:
    place = Place(tmp_path, new_repository(tmp_path / "project"), KINDS[-1])
    good = hashlib.sha256(b"good").hexdigest()
    store = tmp_path / "store"
    write(store, {good: "good", "0" * 64: "bad", "name": "x"})
    (store / ("1" * 64)).symlink_to("/etc/passwd")
    await keep_objects(place.repository, [store])
    kept = [path for path in (place.repository.common_dir / "lfs").rglob("*") if path.is_file()]
    assert [(path.name, path.read_text()) for path in kept] == [(good, "good")]


async def obstacle(project: Path) -> str:
    place = Place(project.parent, project, KINDS[-1])
    head, _ = await place.repository.head()
    assert head is not None
    return await find_obstacle(place.repository, head, place.home)


async def test_a_filter_that_only_the_repository_defines_is_an_obstacle(tmp_path: Path, settings: Path) -> None:
    settings.write_text("")
    project = new_repository(tmp_path / "project", {".gitattributes": "*.key filter=git-crypt\n", "a.key": "x\n"})
    assert await obstacle(project) == ""  # no such filter is defined: git writes the file as it is
    git(project, "config", "filter.git-crypt.smudge", "cat")
    assert "git-crypt, which changes a.key" in await obstacle(project)
    settings.write_text('[filter "git-crypt"]\n\tsmudge = cat\n')
    assert await obstacle(project) == ""
    write(project, {".gitattributes": ""})
    commit(project)
    settings.write_text("")
    assert await obstacle(project) == ""


async def test_what_a_killed_process_has_left_of_a_test_is_removed(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"a": "x\n"})
    ended = subprocess.Popen(["true"])
    ended.wait()
    home = Place(tmp_path, project, KINDS[-1]).home
    tests = [home / f"self-test-{pid}-abc" for pid in (ended.pid, os.getpid())]
    for test in tests:
        write(test, {"name": ""})
    assert await obstacle(project) == ""
    assert [test.exists() for test in tests] == [False, True]


async def test_a_submodule_that_is_checked_out_is_an_obstacle(tmp_path: Path) -> None:
    origin = new_repository(tmp_path / "origin")
    project = new_repository(tmp_path / "project")
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "libs/inner")
    commit(project)
    assert await obstacle(project) == "work in the submodule libs/inner could not be kept"
    git(project, "submodule", "--quiet", "deinit", "--force", "libs/inner")
    assert await obstacle(project) == ""


@pytest.mark.parametrize(
    ("paths", "twins"),
    [
        (["a/b.txt", "a/c.txt"], None),
        (["README", "readme"], ("README", "readme")),
        (["Docs/a", "docs/b"], ("Docs", "docs")),
        (["\u00fc", "u\u0308"], ("\u00fc", "u\u0308")),
    ],
)
def test_names_that_a_file_system_may_take_for_one(paths: list[str], twins: tuple[str, str] | None) -> None:
    assert find_twins(paths) == twins
