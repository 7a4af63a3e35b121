"""The set-up command of a project: its results are in every workspace, at the right paths."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.processes import ExecTimeoutError
from atomic.workspaces import Setup, WorkspaceError, run_setup
from tests.support.repositories import new_repository
from tests.support.waits import eventually
from tests.workspaces.kinds import KINDS, each
from tests.workspaces.places import ADA, REF, Place, fingerprint, shell

FILES = {".gitignore": "deps/\n", "a.txt": "one\n", "tool/b.txt": "two\n"}


@pytest.fixture(params=each(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, new_repository(tmp_path / "project", FILES), request.param)


async def test_results_are_in_every_workspace_with_its_own_path(place: Place) -> None:
    before = fingerprint(place.project)
    script = "mkdir deps; pwd > deps/where"
    workspace = await place.workspace(setup=script)
    assert await shell(workspace, "cat deps/where") == f"{workspace.root}\n"
    other = await place.workspace("2", setup=script)
    assert await shell(other, "cat deps/where") == f"{other.root}\n"
    assert fingerprint(place.project) == before


async def test_it_runs_once(place: Place, tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/count"
    await place.base(script)
    await place.base(script)
    assert (tmp_path / "count").read_text() == "run\n"


async def test_tracked_files_are_restored_and_new_ones_are_no_work_of_a_task(place: Place) -> None:
    script = "echo x >> a.txt; rm tool/b.txt; echo made > 'odd [1] *.txt'; echo made > made.txt"
    workspace = await place.workspace(setup=script)
    assert await shell(workspace, "git status --short; cat a.txt tool/b.txt made.txt 'odd [1] *.txt'") == (
        "one\ntwo\nmade\nmade\n"
    )
    await shell(workspace, "echo task > 'odd 1 a.txt'")
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("diff", "--name-status", "main", captured.result) == "A\todd 1 a.txt\n"


async def test_a_failure_shows_its_last_output_and_leaves_no_base(place: Place) -> None:
    script = "mkdir deps; seq 100; echo no network >&2; exit 3"
    with pytest.raises(WorkspaceError) as caught:
        await place.base(script)
    text = str(caught.value)
    assert "exit code 3" in text
    assert text.endswith("99\n100\nno network")
    assert "--isolate none" in text
    assert "\n50\n" not in text
    assert not (place.run / "base").exists()
    base = await place.base("mkdir deps")  # would fail in a folder that has it already
    assert (base.folder / "deps").is_dir()


async def test_its_processes_end_with_it(place: Place, tmp_path: Path) -> None:
    # A view has process numbers of its own; the file shows the process from outside.
    script = f"sh -c 'exec setsid flock {tmp_path}/lock sleep 3600' > /dev/null 2>&1 & sleep 0.1"
    await place.base(script)
    assert subprocess.run(["flock", "-n", tmp_path / "lock", "true"], check=False).returncode == 0


async def test_it_may_run_in_a_folder_and_with_its_own_environment(place: Place) -> None:
    base = await place.base()
    setup = Setup(
        ("sh", "-c", "pwd; echo $COLOUR"), place.isolation, "tool", {"COLOUR": "red", "PATH": "/bin:/usr/bin"}
    )
    done = await run_setup(base.root, base.folder, setup)
    root = base.root if place.isolation.kind == "overlay" else base.folder
    assert done.stdout == f"{root}/tool\nred\n"


async def test_a_command_that_takes_too_long_is_ended(place: Place) -> None:
    base = await place.base()
    setup = Setup(("sh", "-c", "echo begun; exec sleep 3600"), place.isolation, timeout=0.5)
    with pytest.raises(WorkspaceError, match=r"took longer than 0\.5 s"):
        await run_setup(base.root, base.folder, setup)


async def test_a_killed_set_up_is_repeated_from_a_clean_state(place: Place, tmp_path: Path) -> None:
    script = f"mkdir deps && touch {tmp_path}/begun && [ -e {tmp_path}/again ] || sleep 3600"
    program = """
import asyncio, sys
from pathlib import Path
from atomic.workspaces import Isolation, IsolationKind
from tests.workspaces.places import Place
root, project, kind, own, script = sys.argv[1:]
place = Place(Path(root), Path(project), Isolation(IsolationKind(kind), own == "True"))
asyncio.run(place.base(script))
"""
    isolation = place.isolation
    words = [sys.executable, "-c", program, str(tmp_path), str(place.project)]
    owner = subprocess.Popen([*words, str(isolation.kind), str(isolation.own_user), script])
    await eventually((tmp_path / "begun").exists)
    owner.kill()
    await asyncio.to_thread(owner.wait)
    assert not (place.run / "base").exists()
    (tmp_path / "again").touch()
    base = await place.base(script)
    assert (base.folder / "deps").is_dir()


async def test_a_check_that_takes_too_long_is_no_error_of_the_view(place: Place) -> None:
    workspace = await place.workspace()
    with pytest.raises(ExecTimeoutError):
        async with workspace.open() as view:
            await view.run("sleep", "3600", timeout=0.5)
