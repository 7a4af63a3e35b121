"""Files of a worker that stop git, or run in its place: the work is kept all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomic.workspaces import Isolation, IsolationKind
from tests.support.repositories import new_repository
from tests.workspaces.kinds import KINDS, OVERLAYS, each
from tests.workspaces.places import ADA, REF, Place, shell

FILES = {".gitignore": "node_modules/\n.venv/\n", "a.txt": "one\n", "src/b.txt": "two\n"}


@pytest.fixture(params=each([*OVERLAYS[:1], KINDS[-1]]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, new_repository(tmp_path / "project", FILES), request.param)


@pytest.mark.parametrize("entry", ["{project}/.venv/bin", "{link}", ""])
async def test_programs_of_a_worker_do_not_run_in_the_place_of_git(
    place: Place, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an overlay the user's `PATH` leads to the worker's files."""
    workspace = await place.workspace()
    witness = place.home.parent / "witness"
    fake = f'#!/bin/sh\necho "$0 $*" >> {witness}\nexec /usr/bin/"${{0##*/}}" "$@"\n'
    folder = ".venv/bin" if entry else "."
    script = f'mkdir -p {folder}; for name in git ls sh test; do printf %s "$FAKE" > {folder}/$name; done'
    monkeypatch.setenv("FAKE", fake)
    await shell(workspace, f"{script}; chmod +x {folder}/*; echo work > work.txt")
    link = place.home.parent / "bin"
    link.symlink_to(place.project / ".venv" / "bin")
    named = entry.format(project=place.project, link=link)
    monkeypatch.setenv("PATH", os.pathsep.join([named, os.environ["PATH"]]))
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{captured.result}:work.txt") == "work\n"
    assert not witness.exists()


INNER = {
    "one": ("git init -q sub; echo x > sub/f", {"sub/f": "x\n"}),
    "several": (
        'for name in one two "a [b]*"; do git init -q "in/$name"; echo x > "in/$name/f"; done',
        {"in/one/f": "x\n", "in/two/f": "x\n", "in/a [b]*/f": "x\n"},
    ),
    "in another": (
        "git init -q out; cd out; echo a > a; git add a; git commit -qm out; git init -q deep/in; echo x > deep/in/f",
        {"out/a": "a\n", "out/deep/in/f": "x\n"},
    ),
    "in one without a commit": (
        "git init -q out; cd out; echo a > a; git init -q in; echo x > in/f",
        {"out/a": "a\n", "out/in/f": "x\n"},
    ),
    "beside one with a commit": (
        "git init -q sub; echo x > sub/f; git init -q tool; cd tool; echo t > t; git add t; git commit -qm tool",
        {"sub/f": "x\n", "tool/t": "t\n"},
    ),
    "around tracked files": ("git init -q src; echo x > src/new", {"src/new": "x\n", "src/b.txt": "two\n"}),
    "a submodule": (
        "git init -q sub; echo x > sub/f; git config -f .gitmodules submodule.sub.path sub",
        {"sub/f": "x\n"},
    ),
    "with a damaged head": (
        "git init -q sub; echo x > sub/f; echo ref: refs/heads/../x > sub/.git/HEAD",
        {"sub/f": "x\n"},
    ),
    "with another format": (
        "git init -q sub; echo x > sub/f; git -C sub config core.repositoryFormatVersion 9",
        {"sub/f": "x\n"},
    ),
}


@pytest.mark.ci
@pytest.mark.parametrize("name", INNER)
async def test_files_of_a_repository_without_a_commit_are_kept(place: Place, name: str) -> None:
    script, files = INNER[name]
    workspace = await place.workspace()
    await shell(workspace, f"echo work > work.txt; {script}")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    for path, text in {"work.txt": "work\n", **files}.items():
        assert place.git("show", f"{captured.result}:{path}") == text


WAITING = {
    "rules": "mkfifo sub/.gitignore",
    "rules of the project": "rm .gitignore; mkfifo .gitignore",
    "attributes": "mkfifo .gitattributes sub/.gitattributes",
    "submodules": "mkfifo .gitmodules; git init -q in; (cd in; git commit -q --allow-empty -m in)",
    "settings": "git add .; git commit -qm work; rm .git/config; mkfifo .git/config",
    "head": "rm .git/HEAD; mkfifo .git/HEAD",
    "index": "rm .git/index; mkfifo .git/index",
    "pack": "mkdir -p .git/objects/pack; mkfifo .git/objects/pack/pack-1.idx .git/objects/pack/pack-1.pack",
    "alternates": "mkdir -p .git/objects/info; mkfifo .git/objects/info/alternates",
    "inner head": "git init -q in; rm in/.git/HEAD; mkfifo in/.git/HEAD",
    "inner link": "mkfifo pipe; git init -q in; ln -s ../../pipe in/.git/commondir",
    "inner settings": "git init -q in; (cd in; git commit -q --allow-empty -m in; rm .git/config; mkfifo .git/config)",
    "in place of a file": "rm a.txt; mkfifo a.txt",
    "socket": "rm a.txt; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"a.txt\")'",
}


@pytest.mark.ci
@pytest.mark.parametrize("name", WAITING)
async def test_work_is_kept_although_git_would_wait_for_a_file(place: Place, name: str) -> None:
    workspace = await place.workspace()
    await shell(workspace, f"mkdir sub; echo work > sub/work.txt; {WAITING[name]}")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1\n\nAtomic-Task: 1")
    assert place.git("show", f"{captured.result}:sub/work.txt") == "work\n"
    assert place.git("show", f"{captured.result}:a.txt") == "one\n"
    assert place.git("show", f"{captured.result}:.gitignore") == FILES[".gitignore"]


async def test_the_commit_names_what_could_not_be_kept(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "mkdir sub; mkfifo sub/.gitignore; echo work > sub/work.txt")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1\n\nAtomic-Task: 1")
    named = place.git(
        "log", "-1", "--format=%(trailers:key=Atomic-Not-Kept,valueonly)%(trailers:key=Atomic-Task)", captured.result
    )
    assert named.splitlines()[0].startswith("sub/.gitignore (git cannot store")
    assert "Atomic-Task: 1" in named


async def test_a_call_that_takes_too_long_leaves_no_lock_for_the_second_try(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of another folder are no files of the workspace."""
    monkeypatch.setattr("atomic.workspaces.capture.TIMEOUT", 3.0)
    monkeypatch.setattr("atomic.workspaces.capture._WORKERS_TIMEOUT", 3.0)
    workspace = await place.workspace()
    packs = place.home.parent / "objects" / "pack"
    name = f"{packs}/pack-{'1' * 40}"
    script = f"mkdir -p {packs} .git/objects/info; touch {name}.pack; mkfifo {name}.idx"
    await shell(workspace, f"{script}; echo {packs.parent} > .git/objects/info/alternates; echo work > work.txt")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{captured.result}:work.txt") == "work\n"


async def test_work_is_kept_although_its_folder_has_no_rights(tmp_path: Path) -> None:
    """For root git could read it anyway, so the rights are compared too."""
    place = Place(tmp_path, new_repository(tmp_path / "project", FILES), Isolation(IsolationKind.CLONE))
    workspace = await place.workspace()
    await shell(workspace, "echo work > work.txt; chmod 000 .")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{captured.result}:work.txt") == "work\n"
    assert workspace.root.stat().st_mode & 0o700 == 0o700
