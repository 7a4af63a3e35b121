"""A project of a user, and workspaces of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from atomic.git import Repository, find_repository
from atomic.workspaces import (
    Author,
    Base,
    Isolation,
    Setup,
    Workspace,
    find_contents,
    prepare_base,
)
from tests.support.repositories import git

ADA = Author("Ada", "ada@example.org")
BRANCH = "atomic/3f2a9c1e"
REF = "refs/atomic/run/1/1"


class Place:
    """A project of a user, and the folder of a run."""

    def __init__(self, root: Path, project: Path, isolation: Isolation) -> None:
        self.home = root / "home" / "workspaces"
        self.run = self.home / "run"
        self.project = project
        self.isolation = isolation
        found = find_repository(project)
        assert found is not None
        self.repository: Repository = found

    async def base(self, setup: str = "") -> Base:
        head, _ = await self.repository.head()
        assert head is not None
        contents = await find_contents(self.repository)
        command = Setup(("sh", "-c", setup), self.isolation) if setup else None
        return await prepare_base(self.repository, self.run / "base", head, BRANCH, contents, setup=command)

    async def workspace(self, name: str = "1", at: str = "", *, setup: str = "") -> Workspace:
        base = await self.base(setup)
        made = Workspace(base, self.run / name, self.isolation, hidden=[self.home])
        await made.create(self.repository, at or base.commit)
        return made

    def git(self, *words: str) -> str:
        return git(self.project, *words)


async def shell(workspace: Workspace, script: str) -> str:
    """Run a script in a workspace and return its output."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "W", "GIT_AUTHOR_EMAIL": "w@example.org"}
    env |= {"GIT_COMMITTER_NAME": "W", "GIT_COMMITTER_EMAIL": "w@example.org"}
    async with workspace.open() as view:
        done = await view.run("sh", "-c", script, env=env)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def fingerprint(*folders: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time and content of everything in some folders."""
    found: dict[str, tuple[int, int, str]] = {}
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            status = path.lstat()
            content = b""
            if path.is_symlink():
                content = os.fsencode(os.readlink(path))
            elif path.is_file():
                content = path.read_bytes()
            found[str(path)] = status.st_mode, status.st_mtime_ns, hashlib.sha256(content).hexdigest()
    return found
