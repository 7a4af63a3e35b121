"""The files offered after `@`: tracked or not ignored by git, best match first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from atomic.chat.files import ProjectFiles, best
from atomic.chat.protocol import FilesFound, FindFiles
from tests.chat.engine_client import engine
from tests.support.fake_acp import AGENT, use_fake_acp
from tests.support.user import User

PATHS = ["README.md", "src/app.py", "src/apple/tree.py", "docs/application.md", "tests/test_app.py", "zebra.txt"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("app", ["src/app.py", "docs/application.md", "tests/test_app.py", "src/apple/tree.py"]),
        ("README", ["README.md"]),
        ("zebar", ["zebra.txt"]),
        ("nothing like this", []),
    ],
)
def test_the_best_matches_come_first(text: str, found: list[str]) -> None:
    assert list(best(text, PATHS, 4))[: len(found) or 4] == found
    assert best("", PATHS, 2) == ("README.md", "zebra.txt")


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / ".gitignore").write_text("*.log\n")
    for name in ("a.py", "b.log", "deep/c.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")


async def test_ignored_files_are_not_offered_and_no_program_of_the_repository_runs(tmp_path: Path) -> None:
    make_repository(tmp_path)
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    subprocess.run(["git", "-C", tmp_path, "config", "core.fsmonitor", str(hook)], check=True)
    assert set(await ProjectFiles(tmp_path).find("", 50)) == {".gitignore", "a.py", "deep/c.py", "hook.sh"}
    assert await ProjectFiles(tmp_path / "deep").find("c", 50) == ("c.py",)
    assert not (tmp_path / "ran").exists()


async def test_files_are_found_in_a_folder_without_git(tmp_path: Path) -> None:
    for name in ("x.txt", "node_modules/y.txt", ".hidden/z.txt", "below/w.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert await ProjectFiles(tmp_path).find("", 50) == ("x.txt", "below/w.txt")


async def test_the_engine_finds_files(user: User) -> None:
    use_fake_acp(user)
    make_repository(user.project)
    async with engine(user, "--agent", AGENT) as client:
        client.send(FindFiles(request="q", text="c.p"))
        assert (await client.until_type(FilesFound, request="q")).paths[0] == "deep/c.py"
