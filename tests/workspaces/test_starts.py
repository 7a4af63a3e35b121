"""The start of a run's workspaces: what is refused, and what comes along."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from atomic.config import WorkspaceSettings
from atomic.git import GitError
from atomic.workspaces import Isolation, IsolationError, RunBranch, RunWorkspaces, WorkspaceError
from tests.support.repositories import commit, git, new_repository, write
from tests.workspaces.kinds import KINDS, each
from tests.workspaces.places import ADA, REF, Place, shell

RUN = "3f2a9c1e-0000"


def workspaces_of(project: Path, home: Path) -> RunWorkspaces:
    facts: dict[str, Any] = {}
    return RunWorkspaces(RUN, home, facts, facts.__setitem__, project, WorkspaceSettings())


async def test_uncommitted_files_are_the_first_commit_of_the_branch(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"a.txt": "one\n", "gone.txt": "x\n"})
    write(project, {"a.txt": "two\n", "sub/new.txt": "new\n"})
    (project / "gone.txt").unlink()
    # Atomic's own files are no work of the user.
    begun = await workspaces_of(project, project / "home").begin("clone", include_uncommitted=True)
    assert isinstance(begun, RunBranch)
    changed = git(project, "diff", "--name-status", begun.start, begun.first)
    assert changed == "M\ta.txt\nD\tgone.txt\nA\tsub/new.txt\n"
    assert git(project, "diff", "--cached", "--name-only") == ""


async def test_files_outside_of_a_sparse_checkout_are_not_deleted(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project", {"in/a.txt": "a\n", "in/gone.txt": "x\n", "out/b.txt": "b\n"})
    git(project, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    write(project, {"in/a.txt": "changed\n"})
    (project / "in" / "gone.txt").unlink()
    begun = await workspaces_of(project, tmp_path / "home").begin("clone", include_uncommitted=True)
    assert isinstance(begun, RunBranch)
    changed = git(project, "diff", "--name-status", begun.start, begun.first)
    assert changed == "M\tin/a.txt\nD\tin/gone.txt\n"


async def test_an_inner_repository_cannot_be_included(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project")
    new_repository(project / "inner")
    spaces = workspaces_of(project, tmp_path / "home")
    with pytest.raises(WorkspaceError, match="inner is a repository of its own"):
        await spaces.begin("clone", include_uncommitted=True)
    assert git(project, "branch", "--list", "atomic/*") == ""


async def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    for folder in (tmp_path / "bare.git", tmp_path / "bare.git" / "objects"):
        with pytest.raises(WorkspaceError, match="clone it, and run there"):
            await workspaces_of(folder, tmp_path / "home").begin("auto")


async def test_a_repository_without_a_commit_is_used_itself(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "project")
    assert await workspaces_of(tmp_path / "project", tmp_path / "home").begin("auto") == "the repository has no commit"
    with pytest.raises(IsolationError, match="the repository has no commit"):
        await workspaces_of(tmp_path / "project", tmp_path / "home").begin("clone")


async def test_a_submodule_lets_the_run_work_in_the_checkout(tmp_path: Path) -> None:
    origin = new_repository(tmp_path / "origin")
    project = new_repository(tmp_path / "project")
    git(project, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(origin), "inner")
    commit(project)
    reason = await workspaces_of(project, tmp_path / "home").begin("auto")
    assert reason == "work in the submodule inner could not be kept"


async def test_a_branch_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project")
    (project / ".git" / "refs" / "heads" / "atomic").write_text("in the way\n")
    with pytest.raises(GitError, match="update-ref"):
        await workspaces_of(project, tmp_path / "home").begin("clone")


async def test_atomics_folder_in_the_project_leads_to_clones(tmp_path: Path) -> None:
    project = new_repository(tmp_path / "project")
    begun = await workspaces_of(project, project / "home").begin("auto")
    assert isinstance(begun, RunBranch)
    assert begun.kind == "clone"
    assert "is inside of the project" in begun.reasons[0]


@pytest.fixture
def other_file_system(tmp_path: Path) -> Generator[Path]:
    """Return a folder in memory, where the system has one."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_workspaces_may_be_on_another_file_system(
    tmp_path: Path, other_file_system: Path, isolation: Isolation
) -> None:
    place = Place(other_file_system, new_repository(tmp_path / "project"), isolation)
    workspace = await place.workspace()
    await shell(workspace, "echo new > new.txt")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert await shell(await place.workspace("check", captured.result), "cat new.txt") == "new\n"


async def test_git_may_pack_the_objects_while_they_are_copied(tmp_path: Path, other_file_system: Path) -> None:
    project = new_repository(tmp_path / "project", {"a.txt": "one\n"})
    objects = project / ".git" / "objects"
    loose = [path for path in objects.glob("??/*") if path.is_file()]
    git(project, "repack", "-a", "-d", "-q")
    for path in loose:
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(tmp_path / "gone")  # like a file that was listed, and then removed
    begun = await workspaces_of(project, other_file_system).begin("clone")
    assert isinstance(begun, RunBranch)
    git(other_file_system / "workspaces" / RUN / "base", "fsck", "--full", "--strict")
