"""What is kept in the user's repository is complete, and nothing else is left there."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atomic.git import GitError
from atomic.workspaces import WorkspaceError
from atomic.workspaces.kept_refs import drop_broken_refs
from atomic.workspaces.lfs import keep_objects
from tests.support.repositories import git, new_repository, write
from tests.workspaces.kinds import KINDS
from tests.workspaces.places import ADA, REF, Place, shell
from tests.workspaces.test_interrupted import Runs

FILES = {"a.txt": "one\n"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, new_repository(tmp_path / "project", FILES), KINDS[-1])


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


async def test_a_big_file_with_a_false_name_leaves_nothing(place: Place) -> None:
    before = sorted(place.repository.common_dir.iterdir())
    workspace = await place.workspace()
    script = f"mkdir -p .git/lfs/objects/aa/aa; truncate -s 30M .git/lfs/objects/aa/aa/{'a' * 64}; echo x > x"
    await shell(workspace, script)
    with _no_file_above(10_000_000):  # not even for a moment
        await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert sorted(place.repository.common_dir.iterdir()) == before
    assert place.git("show", f"{REF}:x") == "x\n"


@pytest.mark.parametrize("existing", ["", "lfs", "lfs/objects", "lfs/objects/{a}", "lfs/objects/{a}/{b}"])
async def test_a_big_file_is_kept_whole_or_not_at_all(place: Place, tmp_path: Path, existing: str) -> None:
    content = os.urandom(2_000_000)
    name = hashlib.sha256(content).hexdigest()
    store = tmp_path / "store"
    store.mkdir()
    (store / name).write_bytes(content)
    common = place.repository.common_dir
    (common / existing.format(a=name[:2], b=name[2:4])).mkdir(parents=True, exist_ok=True)
    before = sorted(common.rglob("*"))
    with _no_file_above(1_000_000), pytest.raises(OSError, match="too large"):
        await keep_objects(place.repository, [store])
    assert sorted(common.rglob("*")) == before
    await keep_objects(place.repository, [store])
    assert (common / "lfs" / "objects" / name[:2] / name[2:4] / name).read_bytes() == content
    assert list(common.rglob("atomic-*")) == []


@contextmanager
def _no_file_above(size: int) -> Generator[None]:
    """Let writes fail as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_resume_removes_the_copy_of_a_killed_process(runs: Runs) -> None:
    await runs.next().begin("clone")
    with subprocess.Popen(["true"]) as dead:
        pass
    space = f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    left = runs.project / ".git" / f"atomic-lfs-{dead.pid}-{space}-abc"
    left.mkdir(mode=0o700)
    (left / "part").write_bytes(b"x")
    await runs.next().base()
    assert not left.exists()


@pytest.mark.ci
async def test_work_is_kept_while_the_user_collects_garbage(place: Place) -> None:
    over = asyncio.Event()

    async def collect() -> None:
        words = ("-c", "gc.reflogExpire=now", "-c", "gc.reflogExpireUnreachable=now", "gc", "-q", "--prune=now")
        while not over.is_set():
            done = await asyncio.create_subprocess_exec("git", "-C", str(place.project), *words, stderr=-3)
            await done.wait()

    collecting = asyncio.create_task(collect())
    for number in range(8):
        workspace = await place.workspace(str(number))
        await shell(workspace, f"echo {number} > {number}.txt; git add .; git commit -qm {number}; echo more > more")
        await workspace.capture(place.repository, f"refs/atomic/run/{number}/1", ADA, "Task")
        await workspace.remove()
    over.set()
    await collecting
    for number in range(8):
        assert place.git("show", f"refs/atomic/run/{number}/1:{number}.txt") == f"{number}\n"
    place.git("fsck", "--full")


async def test_a_capture_is_not_stopped_by_a_broken_ref_of_its_run(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo x > x")
    broken = place.repository.common_dir / "refs" / "atomic" / "run" / "6" / "1-merged"
    broken.parent.mkdir(parents=True)
    broken.write_text(f"{'1' * 40}\n")
    await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{REF}:x") == "x\n"
    assert not broken.exists()


@pytest.mark.parametrize(
    "problem",
    [
        "fatal: unable to create thread: Resource temporarily unavailable",
        "error: unable to open object pack directory: .git/objects/pack: Too many open files\nfatal: bad object 1",
        "",
    ],
    ids=["thread", "files", "killed"],
)
async def test_parked_work_is_kept_if_git_could_not_read_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    base = place.git("rev-parse", "HEAD").strip()
    commit = place.git("commit-tree", "-m", "work", "-p", base, "HEAD^{tree}").strip()
    place.git("update-ref", REF, commit)
    programs = tmp_path / "programs"
    programs.mkdir()
    script = f"""#!/bin/sh
case "$*" in *rev-list*) input=$(cat); case "$input" in
{commit}*) test -z "{problem}" && kill -9 $$; echo "{problem}" >&2; exit 128;;
esac; echo "$input" | exec {shutil.which("git")} "$@"; exit;; esac
exec {shutil.which("git")} "$@"
"""
    write(programs, {"git": script})
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with pytest.raises(GitError):
        await drop_broken_refs(place.repository, "refs/atomic/", base)
    assert place.git("rev-parse", REF).strip() == commit


async def test_a_resume_parks_again_what_the_users_repository_has_lost(runs: Runs) -> None:
    spaces = runs.next()
    await spaces.begin("clone")
    async with spaces.use("1", message="Task 1", attempt=1, keep=True) as place:
        await place.run("sh", "-c", "echo work > work.txt")
    ref = f"refs/atomic/{runs.folder.name}/1/1"
    blob = git(runs.project, "rev-parse", f"{ref}:work.txt").strip()
    _lose(runs.project, blob)
    resumed = runs.next()
    await resumed.base()
    assert git(runs.project, "for-each-ref", ref) == ""
    async with resumed.use("1", message="Task 1", attempt=2, keep=True) as place:
        pass
    assert git(runs.project, "show", f"refs/atomic/{runs.folder.name}/1/2:work.txt") == "work\n"


def _lose(project: Path, blob: str) -> None:
    """Remove one object of a repository."""
    packs = [*(project / ".git" / "objects" / "pack").glob("*.pack")]
    for pack in packs:
        moved = pack.rename(project.parent / pack.name)
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=project, stdin=file, check=True)
    (project / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


@pytest.mark.parametrize("damage", ["rm -f $file", "chmod +w $file; echo other > $file"], ids=["missing", "changed"])
async def test_a_damaged_stash_takes_nothing_else_along(place: Place, damage: str) -> None:
    workspace = await place.workspace()
    await shell(
        workspace,
        "echo good > good.txt; git add .; git commit -qm good;"
        "echo reset > reset.txt; git add .; git commit -qm reset; git reset -q --hard HEAD~1;"
        "echo bad > bad.txt; git stash -q -u; name=$(echo bad | git hash-object --stdin);"
        f"file=.git/objects/$(echo $name | cut -c1-2)/$(echo $name | cut -c3-); {damage}; echo loose > loose.txt",
    )
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("show", f"{captured.result}:loose.txt") == "loose\n"
    assert place.git("log", "--format=%s", captured.result).split("\n")[:2] == ["Task 1", "good"]
    assert "reset" in place.git("log", "--format=%s", REF).splitlines()


async def test_nothing_is_left_out_because_the_disk_is_full(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo work > work.txt; git add .; git commit -qm work; echo other > o.txt; git stash -q -u")
    full = tmp_path / "bin" / "git"
    script = f"""#!/bin/sh
for word; do
    if [ "$word" = bundle ] && [ ! -e "{tmp_path}/freed" ]; then
        touch "{tmp_path}/freed"
        echo "fatal: write error: No space left on device" >&2
        exit 128
    fi
done
exec {shutil.which("git")} "$@"
"""
    write(tmp_path, {"bin/git": script})
    full.chmod(0o755)
    monkeypatch.setenv("PATH", f"{full.parent}:{os.environ['PATH']}")
    with pytest.raises(WorkspaceError, match="No space left on device"):
        await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert workspace.exists
    captured = await workspace.capture(place.repository, REF, ADA, "Task 1")
    assert place.git("log", "-1", "--format=%s", captured.result) == "work\n"
