"""A worker that looks for a way to the user's checkout, and a user who moves it away."""

from __future__ import annotations

import asyncio
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from atomic.processes import ExecResult
from atomic.workspaces import Isolation, open_checkout
from tests.support.repositories import git, new_repository
from tests.workspaces.kinds import GUARDED, OVERLAYS, each
from tests.workspaces.places import Place, fingerprint

FILES = {"a.txt": "one\n", ".gitignore": "ignored\n"}
pytestmark = pytest.mark.parametrize("isolation", each([*OVERLAYS, *GUARDED]))

# Opens the folder that a view covers by its number on the disk.
BY_NUMBER = """
import ctypes, os, struct, sys
parent, name = os.path.split(sys.argv[1])
number = next(entry.inode() for entry in os.scandir(parent) if entry.name == name)
handle = ctypes.create_string_buffer(struct.pack("<IiII", 8, 1, number, 0), 144)
libc = ctypes.CDLL(None, use_errno=True)
folder = libc.open_by_handle_at(os.open(parent, os.O_RDONLY), handle, os.O_RDONLY | os.O_DIRECTORY)
if folder < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
os.write(os.open("a.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder), b"evil")
"""


async def _worker(place: Place, *argv: str) -> ExecResult:
    workspace = await place.workspace()
    async with workspace.open() as view:
        return await view.run(*argv)


async def test_the_folders_above_the_project_cannot_be_moved_away(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "home" / "projects" / "project", FILES)
    before = fingerprint(project)
    script = """
    for folder in "$(dirname "$1")" "$(dirname "$(dirname "$1")")"; do
        mv "$folder" "$folder.moved" && mkdir -p "$1" && echo moved
    done
    """
    done = await _worker(Place(tmp_path, project, isolation), "sh", "-c", script, "sh", str(project))
    assert "moved\n" not in done.stdout
    assert fingerprint(project) == before


async def test_the_repository_of_a_linked_worktree_cannot_be_written(tmp_path: Path, isolation: Isolation) -> None:
    main = new_repository(tmp_path / "main", FILES)
    project = tmp_path / "project"
    git(main, "worktree", "add", "-q", "-b", "side", str(project))
    place = Place(tmp_path, project, isolation)
    workspace = await place.workspace()
    before = fingerprint(main)
    async with workspace.open() as view:
        done = await view.run(
            "sh", "-c", 'rm -rf "$1/config"; echo x > "$1/new"; rm "$2"', "sh", f"{main}/.git", "a.txt"
        )
    assert done.stderr.count("Read-only file system") == 2
    assert fingerprint(main) == before


async def test_root_in_a_view_has_no_right_to_look_below_it(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    done = await _worker(Place(tmp_path, project, isolation), sys.executable, "-c", BY_NUMBER, str(project))
    assert (done.exit_code, done.stderr) == (1, "Operation not permitted\n")
    assert (project / "a.txt").read_text() == "one\n"


async def test_root_in_a_view_can_still_install_programs(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    script = "echo x > file && chown 0:0 file && chmod 4755 file && cat file"
    done = await _worker(
        Place(tmp_path, project, isolation), "sh", "-c", f"[ $(id -u) != 0 ] && echo x || {{ {script}; }}"
    )
    assert (done.stdout, done.stderr) == ("x\n", "")


def _processes_with(words: str) -> list[str]:
    """Return the command lines that have these words."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return [line for line in found if words in line]


async def test_a_view_ends_when_the_user_moves_the_project_away(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    workspace = await Place(tmp_path, project, isolation).workspace()
    script = f"touch {tmp_path}/begun; while :; do echo evil > {project}/b.txt; sleep 0.02; done"
    async with workspace.open() as view:
        running = asyncio.create_task(view.run("sh", "-c", script))
        while not (tmp_path / "begun").exists():
            await asyncio.sleep(0.01)
        project.rename(tmp_path / "moved")
        done = await running
    assert done.exit_code == -9
    assert _processes_with(f"echo evil > {project}/b.txt") == []
    shutil.copytree(tmp_path / "moved", project)
    assert not (project / "b.txt").exists()


async def test_a_checkout_is_seen_although_other_workspaces_are_hidden(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    home = tmp_path / "home"
    async with open_checkout(project, home / "run" / "checkout", isolation, hidden=[home]) as view:
        done = await view.run("sh", "-c", "cat a.txt; git status --short")
    assert (done.stdout, done.stderr) == ("one\n", "")
