"""What Atomic keeps is the user's own: its folder, its logs, its temporary files, and no image of its memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.processes.temporary_folders import temporary_prefix
from tests.support.fake_acp import PROGRAM
from tests.support.user import ATOMIC, User, complaint
from tests.support.user_workflows import HEAD, call, end, recording, sessions, workflow

NOBODY = 65534
LINES = (("config",), ("doctor",), ("-p", "hi"), ("workflows", "list"), ("sessions", "list"), ("run", "ralph", "x"))


def give_away(user: User, path: Path) -> None:
    """Let a file belong to another user than the one who runs `atomic`."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
        return
    folder = user.home / "another"  # who may not give files away is another user themselves
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"import os\nos.getuid = lambda: {NOBODY}\n")
    user.env["PYTHONPATH"] = f"{folder}:{user.env['PYTHONPATH']}"


@pytest.fixture
def shared(user: User, tmp_path: Path) -> Path:
    """Return a home for Atomic in which another user has put a configuration."""
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "config.toml").write_text(f'agent = "claude"\n[providers.claude]\npath = "{tmp_path}/evil"\n')
    user.env["ATOMIC_HOME"] = str(folder)
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    return folder


def share_group(user: User) -> None:
    """Let the user's own group have another member."""
    folder = user.home / "groups"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import grp\nfound = grp.getgrgid\n"
        "grp.getgrgid = lambda id: grp.struct_group((*found(id)[:3], ['somebody-else']))\n"
    )
    user.env["PYTHONPATH"] = f"{folder}:{user.env['PYTHONPATH']}"


async def test_a_folder_that_only_the_users_own_group_can_write_is_fine(user: User, shared: Path) -> None:
    (shared / "config.toml").write_text("")
    shared.chmod(0o775)  # what `mkdir` makes where the umask is 002
    assert (await user.atomic("config")).exit_code == 0


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("words", LINES)
async def test_a_folder_that_others_can_write_is_refused(user: User, shared: Path, mode: int, words: list[str]) -> None:
    share_group(user)
    shared.chmod(mode)
    done = await user.atomic(*words)
    assert (done.exit_code, complaint(done)) == (
        2,
        f"{shared} can be written by other users: run chmod go-w {shared}",
    )
    assert not (shared.parent / "ran").exists()


async def test_a_folder_for_everyone_is_refused_without_advice_to_change_it(user: User, shared: Path) -> None:
    shared.chmod(0o1777)
    done = await user.atomic("sessions")
    assert done.exit_code == 2
    assert complaint(done) == f"{shared} is shared with other users: set ATOMIC_HOME to a folder of your own"


@pytest.mark.ci
@pytest.mark.parametrize("words", LINES)
async def test_a_folder_of_another_user_is_refused(user: User, shared: Path, words: list[str]) -> None:
    give_away(user, shared)
    done = await user.atomic(*words)
    assert (done.exit_code, complaint(done)) == (
        2,
        f"{shared} belongs to another user: set ATOMIC_HOME to a folder of your own",
    )


@pytest.mark.ci
@pytest.mark.parametrize("place", [".", ".atomic", ".atomic/config.toml"])
async def test_a_projects_configuration_of_another_user_is_not_read(user: User, place: str) -> None:
    user.project_sets('theme = "light"\n')
    give_away(user, user.project / place)
    done = await user.atomic("config", "--json")
    data = json.loads(done.stdout)
    assert "light" not in json.dumps(data["settings"])
    assert "belongs to another user" in json.dumps(data["warnings"])


@pytest.mark.ci
async def test_a_log_that_is_a_link_is_not_followed(user: User, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine\n")
    code = f"""
async def first(ctx):
    import os
    for name in ("progress.txt", "logs/errors.log", "logs/agent-calls.jsonl"):
        path = os.path.join(str(ctx.deps.files.dir), name)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink({str(target)!r}, path)
    await ctx.deps.turn("hi")
    raise ValueError("over")
workflow = graph(S).node("first", first).compile()
"""
    workflow(user, "links", code)
    agent = recording(user, call(end("ok")))
    first = await user.atomic("run", "--agent", agent, "links", "x")
    assert first.exit_code == 1, first.stderr
    (session,) = sessions(user)
    await user.atomic("resume", session.name)
    assert target.read_text() == "mine\n"


@pytest.mark.ci
async def test_neither_atomic_nor_its_children_leave_a_core_dump(user: User, tmp_path: Path) -> None:
    agent = ["/bin/sh", "-c", f"ulimit -c > '{tmp_path}/limit'; exec '{sys.executable}' '{PROGRAM}'"]
    user.sets(f"[acp.puppet]\ncommand = {json.dumps(agent)}\n")
    done = subprocess.run(
        [ATOMIC, "-p", "--agent", "acp:puppet", '[{"say": "Hello."}]'],
        env=user.env,
        cwd=user.project,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1])
        ),
    )
    assert done.stdout == "Hello.\n"
    assert (tmp_path / "limit").read_text().strip() == "0"


@pytest.mark.ci
async def test_temporary_folders_of_killed_processes_are_removed_and_no_others(user: User, tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    user.env["TMPDIR"] = str(place)
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    mine = temporary_prefix("acp")
    dead = mine.replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    elsewhere = f"atomic-acp-{gone.pid}-1-x"  # of another container
    for name in (f"{dead}one", f"{mine}two", elsewhere, "atomic-notes", "atomic-demo-abc"):
        (place / name).mkdir(mode=0o700)
        (place / name / "mcp.json").write_text("{}")
    (place / f"{dead}open").mkdir(mode=0o755)
    (place / f"{dead}link").symlink_to(tmp_path)
    await user.atomic("-p", "--agent", recording(user, call(end("ok"))), "hi")
    left = {f"{mine}two", elsewhere, "atomic-notes", "atomic-demo-abc", f"{dead}open", f"{dead}link"}
    assert {one.name for one in place.iterdir()} == left


@pytest.mark.parametrize("words", [("sessions", "list"), ("run", "hello", "x")])
async def test_a_home_that_is_a_file_is_refused(user: User, words: tuple[str, ...]) -> None:
    file = user.home / "file"
    file.write_text("")
    user.env["ATOMIC_HOME"] = str(file)
    done = await user.atomic(*words)
    assert done.exit_code == 2
    assert complaint(done) == f"{file} is not a folder: set ATOMIC_HOME to one"
    user.env["ATOMIC_HOME"] = str(file / "below")
    done = await user.atomic(*words)
    assert done.exit_code == 2
    assert complaint(done) == f"{file / 'below'} cannot be a folder: set ATOMIC_HOME to another one"


# -- the XDG directories


FLOW = 'workflow = graph(S).tool("work", lambda state: 1, output_mapper=lambda one, state: {}).compile()\n'


@pytest.fixture
def tidy(user: User) -> User:
    """Return a user with XDG directories and without `~/.atomic`."""
    user.env["XDG_CONFIG_HOME"] = str(user.home / "config")
    user.env["XDG_STATE_HOME"] = str(user.home / "state")
    return user


async def test_xdg_directories_separate_what_the_user_writes_from_what_atomic_writes(tidy: User) -> None:
    config = tidy.home / "config" / "atomic"
    (config / "workflows").mkdir(parents=True)
    (config / "config.toml").write_text('theme = "light"\n')
    (config / "mcp.json").write_text('{"mcpServers": {"box": {"command": "npx"}}}')
    (config / "workflows" / "mine.py").write_text(HEAD + FLOW)
    assert '"light"' in (await tidy.atomic("config")).stdout
    assert "box" in (await tidy.atomic("mcp", "list")).stdout
    done = await tidy.atomic("run", "mine", "go")
    assert done.exit_code == 0, done.stderr
    [folder] = (tidy.home / "state" / "atomic" / "sessions").iterdir()
    assert folder.name[:8] in (await tidy.atomic("sessions")).stdout
    assert folder.name in (await tidy.atomic("complete", "resume", "")).stdout
    assert "mine" in (await tidy.atomic("complete", "run", "")).stdout
    doctor = await tidy.atomic("doctor", "--json")
    details = [check["detail"] for check in json.loads(doctor.stdout)["checks"] if check["name"] == "home"]
    assert details == [f"{config} (settings), {tidy.home}/state/atomic (runs)"]

    # What Atomic writes is never beside what the user writes, and nothing is in the home folder.
    assert sorted(path.name for path in config.iterdir()) == ["config.toml", "mcp.json", "workflows"]
    assert not (tidy.home / ".atomic").exists()


async def test_an_approval_is_state(tidy: User) -> None:
    (tidy.project / ".atomic" / "workflows").mkdir(parents=True)
    (tidy.project / ".atomic" / "workflows" / "own.py").write_text(HEAD + FLOW)
    shown = json.loads((await tidy.atomic("trust", "--show", "--json")).stdout)
    assert (await tidy.atomic("trust", shown["hash"])).exit_code == 0
    assert (tidy.home / "state" / "atomic" / "trust.json").exists()


async def test_xdg_directories_count_only_without_a_folder_of_its_own(tidy: User) -> None:
    (tidy.home / ".atomic").mkdir()
    (tidy.home / ".atomic" / "config.toml").write_text('theme = "contrast"\n')
    (tidy.home / "config" / "atomic").mkdir(parents=True)
    (tidy.home / "config" / "atomic" / "config.toml").write_text('theme = "light"\n')
    assert '"contrast"' in (await tidy.atomic("config")).stdout
    tidy.env["ATOMIC_HOME"] = str(tidy.home / "chosen")
    assert '"' not in (await tidy.atomic("config")).stdout.partition("theme")[2].partition("\n")[0]


async def test_a_process_without_the_variables_finds_the_default_directories(user: User) -> None:
    user.env["XDG_STATE_HOME"] = str(user.home / ".local" / "state")
    (user.project / ".atomic" / "workflows").mkdir(parents=True)
    (user.project / ".atomic" / "workflows" / "own.py").write_text(HEAD + FLOW)
    shown = json.loads((await user.atomic("trust", "--show", "--json")).stdout)
    await user.atomic("trust", shown["hash"])
    del user.env["XDG_STATE_HOME"]  # as in a cron job
    assert json.loads((await user.atomic("trust", "--show", "--json")).stdout)["trusted"]


async def test_a_relative_directory_is_ignored(user: User) -> None:
    user.env["XDG_STATE_HOME"] = "state"
    (user.project / "state" / "atomic").mkdir(parents=True)
    doctor = await user.atomic("doctor", "--json")
    details = [check["detail"] for check in json.loads(doctor.stdout)["checks"] if check["name"] == "home"]
    assert details == [f"{user.home}/.atomic"]
