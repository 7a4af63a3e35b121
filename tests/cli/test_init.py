"""`atomic init`: a project to begin with, and nothing that was there is lost."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.entity_files import write
from tests.support.ordinary_user import become_ordinary
from tests.support.repositories import git
from tests.support.user import User, complaint


async def test_a_new_project_gets_a_configuration_and_a_workflow_that_loads(user: User) -> None:
    done = await user.atomic("init")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "made   .atomic/config.toml\nmade   .atomic/workflows/example.py\n" in done.stdout
    assert (await user.atomic("config")).stderr == ""
    listed = await user.atomic("workflows", "list")
    assert (listed.exit_code, "example" in listed.stdout) == (0, True)
    graph = await user.atomic("workflows", "graph", "example")  # what Atomic wrote itself is trusted
    assert (graph.exit_code, graph.stderr) == (0, "")
    assert "review" in graph.stdout


async def test_existing_files_stay_unchanged(user: User) -> None:
    mine = user.project_sets('agent = "claude"\n')
    done = await user.atomic("init")
    assert mine.read_text() == 'agent = "claude"\n'
    assert "there  .atomic/config.toml\nmade   .atomic/workflows/example.py\n" in done.stdout
    again = await user.atomic("init")
    assert (again.exit_code, again.stdout.count("there  ")) == (0, 3)


async def test_below_a_repository_it_is_the_repository_that_is_begun(user: User) -> None:
    git(user.project, "init", "-q")
    inner = user.project / "src" / "deep"
    inner.mkdir(parents=True)
    assert (await user.atomic("init", cwd=inner)).exit_code == 0
    assert (user.project / ".atomic" / "config.toml").exists()
    assert not (inner / ".atomic").exists()


async def test_the_home_folder_is_not_a_project(user: User) -> None:
    done = await user.atomic("init", cwd=user.home)
    assert done.exit_code == 2
    assert "home folder" in complaint(done)
    assert not (user.home / ".atomic" / "workflows").exists()


async def test_a_link_does_not_lead_it_out_of_the_project(user: User, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (user.project / ".atomic").symlink_to(elsewhere)
    assert (await user.atomic("init")).exit_code == 1
    (user.project / ".atomic").unlink()
    write(user.project / ".atomic" / "config.toml", "")
    (user.project / ".atomic" / "workflows").symlink_to(elsewhere)
    assert (await user.atomic("init")).exit_code == 1
    assert list(elsewhere.iterdir()) == []


async def test_the_root_folder_is_refused_before_anything_is_written(user: User) -> None:
    before = os.path.lexists("/.atomic")
    done = await user.atomic("init", cwd=Path("/"))
    assert (done.exit_code, complaint(done)) == (2, "/ holds many projects (change to a project's folder)")
    assert os.path.lexists("/.atomic") == before


async def test_nothing_is_written_if_approvals_cannot_be_stored(user: User) -> None:
    become_ordinary(user)
    user.home.chmod(0o555)
    done = await user.atomic("init")
    user.home.chmod(0o755)
    assert f"you may not write to {user.home}, where your approvals are kept" in complaint(done)
    assert not (user.project / ".atomic").exists()
