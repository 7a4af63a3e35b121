"""Workers that do their worst: the user's checkout is as before, and their work is kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from atomic.processes import find_marked, new_mark
from atomic.workspaces import Isolation, WorkspaceError
from tests.support.checkouts import checkout_state
from tests.support.processes import is_alive
from tests.support.repositories import git, new_repository, write
from tests.workspaces.kinds import GUARDED, OVERLAYS, each
from tests.workspaces.places import ADA, REF, Place, shell
from tests.workspaces.worst import DELETES_WORK, START, WORST

FILES = {".gitignore": "node_modules/\n.env\n", "a.txt": "one\n", "src/b.txt": "two\n"}


def users_project(folder: Path) -> Path:
    """Make a project with an origin, and with everything that a user may have in one."""
    origin = new_repository(folder / "source", FILES)
    git(origin, "branch", "feature")
    git(folder, "clone", "-q", "--bare", str(origin), "origin.git")
    git(folder, "clone", "-q", str(folder / "origin.git"), "project")
    project = folder / "project"
    git(project, "branch", "feature", "origin/feature")
    git(project, "tag", "v1")
    write(project, {"stashed.txt": "stashed\n", "node_modules/x/index.js": "dependency\n", ".env": "KEY=1\n"})
    git(project, "stash", "-uq")
    write(project, {"draft.txt": "draft\n", "a.txt": "changed\n", "src/staged.txt": "staged\n"})
    git(project, "add", "src/staged.txt")
    hook = project / ".git" / "hooks" / "post-commit"
    write(project, {".git/hooks/post-commit": "#!/bin/sh\nexit 0\n"})
    hook.chmod(0o755)
    return project


@pytest.mark.ci
@pytest.mark.parametrize("name", WORST)
@pytest.mark.parametrize("isolation", each(OVERLAYS + GUARDED, guarded=pytest.mark.full))
async def test_the_worst_worker_touches_nothing_of_the_user_and_its_work_is_kept(
    tmp_path: Path, isolation: Isolation, name: str
) -> None:
    project = users_project(tmp_path)
    place = Place(tmp_path, project, isolation)
    before = checkout_state(project), checkout_state(tmp_path / "origin.git")
    workspace = await place.workspace()
    mark = new_mark("WORST")
    with subprocess.Popen(["sleep", "3600"]) as victim:
        env = {
            **os.environ,
            **mark,
            "PROJECT": str(project),
            "ORIGIN": str(tmp_path / "origin.git"),
            "HOME_OF_ATOMIC": str(place.home.parent),
            "VICTIM": str(victim.pid),
            "WITNESS": str(tmp_path / "witness"),
        }
        try:
            async with workspace.open() as view:
                began = await view.run("sh", "-c", START, env=env)
                assert began.exit_code == 0, began.stderr
                await view.run("sh", "-c", WORST[name], env=env)
            assert is_alive(victim.pid)
        finally:
            victim.kill()
    assert find_marked(mark) == []
    await workspace.capture(place.repository, REF, ADA, "Task 1")
    await workspace.remove()
    assert before[0].changes_to(checkout_state(project)) == []
    assert before[1].changes_to(checkout_state(tmp_path / "origin.git")) == []
    assert not (tmp_path / "witness").exists()
    assert not workspace.folder.exists()
    if DELETES_WORK.get(name) != isolation.kind:
        objects = git(project, "rev-list", "--objects", REF)
        assert " work.txt\n" in objects


@pytest.mark.parametrize("isolation", each(OVERLAYS[:1]))
async def test_nothing_is_removed_if_git_cannot_store_a_file(tmp_path: Path, isolation: Isolation) -> None:
    """Git refuses names that a case-insensitive file system takes for its own folder."""
    place = Place(tmp_path, users_project(tmp_path), isolation)
    workspace = await place.workspace()
    await shell(workspace, "mkdir .GIT; echo x > .GIT/config")
    with pytest.raises(WorkspaceError, match=r"cannot be kept at .*invalid path '\.GIT/config'"):
        await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert await shell(workspace, "cat .GIT/config") == "x\n"
