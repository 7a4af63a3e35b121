"""Workspaces as their users see them: real git, real mounts, both kinds."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.git import Repository, find_repository
from atomic.workspaces import (
    Author,
    Base,
    Contents,
    Isolation,
    IsolationKind,
    Workspace,
    choose_isolation,
    find_contents,
    prepare_base,
    restore_files_in,
    tracked_files_in,
)
from tests.support.processes import is_alive
from tests.support.repositories import commit, git, new_repository, write
from tests.support.waits import eventually
from tests.workspaces.kinds import KINDS, OVERLAYS, each

ADA = Author("Ada", "ada@example.org")
BRANCH = "atomic/3f2a9c1e"
FILES = {".gitignore": "node_modules/\n.env\n*.log\n", "a.txt": "one\n", "src/b.txt": "two\n"}


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

    async def base(self) -> Base:
        head, _ = await self.repository.head()
        assert head is not None
        contents = await find_contents(self.repository)
        return await prepare_base(self.repository, self.run / "base", head, BRANCH, contents)

    async def workspace(self, name: str = "1", at: str = "") -> Workspace:
        base = await self.base()
        made = Workspace(base, self.run / name, self.isolation, hidden=[self.home])
        await made.create(self.repository, at or base.commit)
        return made

    def git(self, *words: str) -> str:
        return git(self.project, *words)


@pytest.fixture(params=each(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    project = new_repository(tmp_path / "project", FILES)
    write(project, {"node_modules/x/index.js": "dependency\n", ".env": "KEY=1\n", "draft.txt": "draft\n", "x.log": "x"})
    return Place(tmp_path, project, request.param)


async def shell(workspace: Workspace, script: str) -> str:
    """Run a script in a workspace and return its output."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "W", "GIT_AUTHOR_EMAIL": "w@example.org"}
    env |= {"GIT_COMMITTER_NAME": "W", "GIT_COMMITTER_EMAIL": "w@example.org"}
    async with workspace.open() as view:
        done = await view.run("sh", "-c", script, env=env)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_a_workspace_has_the_commit_and_the_dependencies_and_not_the_users_drafts(place: Place) -> None:
    workspace = await place.workspace()
    listed = await shell(workspace, "git status --short; cat a.txt node_modules/x/index.js .env; ls")
    assert listed == "one\ndependency\nKEY=1\na.txt\nnode_modules\nsrc\n"


@pytest.mark.parametrize("isolation", each(OVERLAYS))
async def test_an_overlay_shows_the_project_at_its_own_path(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    place = Place(tmp_path, project, isolation)
    workspace = await place.workspace()
    await shell(workspace, f"echo changed > {project}/a.txt; rm -r {project}/src")
    assert (project / "a.txt").read_text() == "one\n"
    assert (project / "src" / "b.txt").exists()
    assert await shell(workspace, "pwd; cat a.txt; ls") == f"{project}\nchanged\na.txt\n"


WORST = [
    "git stash -u --quiet || true; git clean -fdxq; git gc --quiet --prune=now",
    "git reset --hard --quiet HEAD; git branch -f main HEAD; git tag bad; git checkout -q -b evil",
    "git update-ref -d refs/heads/main; git reflog expire --expire=now --all",
    "echo 'exit 1' > .git/hooks/pre-commit 2>/dev/null || mkdir -p .git/hooks; git config core.bare true",
    "rm -rf .git",
    "rm -rf ./* .[a-z]*",
    "chmod -R 000 src; mv a.txt renamed.txt",
]


@pytest.mark.parametrize("script", [*WORST[:2], *(pytest.param(one, marks=pytest.mark.ci) for one in WORST[2:])])
async def test_the_users_checkout_is_untouched_whatever_a_worker_does(place: Place, script: str) -> None:
    workspace = await place.workspace()
    before = files_of(place.project)
    await shell(workspace, f"echo work > new.txt; {script}")
    assert files_of(place.project) == before


async def test_everything_a_worker_leaves_can_be_restored(place: Place) -> None:
    workspace = await place.workspace()
    await shell(
        workspace,
        "echo committed > c.txt; git add c.txt; git commit -qm c;"
        "echo lost > lost.txt; git add lost.txt; git commit -qm lost; git reset -q --hard HEAD~1;"
        "echo stashed > s.txt; git stash -q -u;"
        "echo branched > br.txt; git checkout -q -b side; git add br.txt; git commit -qm side; git checkout -q -;"
        "echo staged > st.txt; git add st.txt; echo unstaged > st.txt; echo untracked > u.txt",
    )
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    await workspace.remove()
    listed = place.git("log", "--format=%H", "refs/atomic/run/1/1").split()
    contents = {place.git("ls-tree", "-r", commit) for commit in listed}
    blobs = {line.split()[2] for content in contents for line in content.splitlines()}
    texts = {place.git("cat-file", "blob", blob) for blob in blobs}
    wanted = {"committed\n", "lost\n", "stashed\n", "branched\n", "staged\n", "unstaged\n", "untracked\n"}
    assert wanted <= texts
    assert place.git("show", f"{captured.result}:u.txt") == "untracked\n"
    assert place.git("show", f"{captured.result}:st.txt") == "unstaged\n"


async def test_what_is_only_staged_is_kept_although_the_project_has_one_commit(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo staged > s.txt; git add s.txt; rm s.txt")
    await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    assert place.git("rev-list", "--count", "main") == "1\n"
    assert place.git("show", "refs/atomic/run/1/1^2:s.txt") == "staged\n"


async def test_what_is_only_staged_is_kept_although_other_files_have_conflicts(place: Place) -> None:
    workspace = await place.workspace()
    await shell(
        workspace,
        "git checkout -q -b side; echo side > a.txt; git commit -qam side; git checkout -q -;"
        "echo main > a.txt; git commit -qam main; git merge -q side || true;"
        "echo only > s.txt; git add s.txt; rm s.txt",
    )
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    assert captured.unfinished == "merge"
    assert place.git("show", "refs/atomic/run/1/1^2:s.txt") == "only\n"


async def test_the_result_is_the_workers_commit_if_nothing_is_left_uncommitted(place: Place) -> None:
    workspace = await place.workspace()
    head = await shell(workspace, "echo new > n.txt; git add n.txt; git commit -qm mine; git rev-parse HEAD")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    assert captured.result == captured.parked == head.strip()
    assert place.git("rev-parse", "refs/atomic/run/1/1") == head


async def test_an_untouched_workspace_has_the_start_commit_as_its_result(place: Place) -> None:
    workspace = await place.workspace()
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    assert captured.result == captured.parked == place.git("rev-parse", "main").strip()


async def test_files_are_kept_when_the_worker_has_deleted_the_repository(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo new > n.txt; rm -rf .git; rm src/b.txt")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    changed = place.git("diff", "--name-status", "main", captured.result)
    assert changed.split() == ["A", "n.txt", "D", "src/b.txt"]


async def test_the_files_of_a_deleted_repository_are_a_change_of_the_commit_it_began_at(place: Place) -> None:
    """Not of the base: the work of other tasks that is in the files would be this task's."""
    write(place.project, {"later.txt": "later\n"})
    later = commit(place.project, "Work of another task")
    git(place.project, "reset", "-q", "--hard", "HEAD~1")
    workspace = await place.workspace(at=later)
    await shell(workspace, "rm -rf .git; echo mine > mine.txt; git init -q; git add mine.txt; git commit -qm Mine")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Work")
    assert place.git("rev-parse", f"{captured.result}^").strip() == later
    assert place.git("diff", "--name-only", later, captured.result).split() == ["mine.txt"]


async def test_ignored_files_that_the_worker_has_committed_are_in_the_result(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo log > x.log; echo log > 'y [1].log'; git add -f *.log; git commit -qm Logs; rm x.log")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Work")
    assert place.git("show", f"{captured.result}:y [1].log") == "log\n"
    assert "x.log" not in place.git("ls-tree", "--name-only", captured.result).splitlines()


@pytest.mark.parametrize(
    ("script", "unfinished"),
    [
        ("git rebase main", "rebase"),
        ("git merge main", "merge"),
        ("git cherry-pick main", "cherry-pick"),
        ("echo more > a.txt; git stash -q; git checkout -q main; git stash pop", "conflict"),
        ("git rebase main; git rebase --abort", ""),
    ],
)
async def test_a_conflict_that_git_waits_for_is_known(tmp_path: Path, script: str, unfinished: str) -> None:
    place = Place(tmp_path, new_repository(tmp_path / "project", FILES), Isolation(IsolationKind.CLONE))
    workspace = await place.workspace()
    sides = "git checkout -q -b mine; echo mine > a.txt; git commit -qam Mine; git checkout -q main; echo x > a.txt"
    await shell(workspace, f"{sides}; git commit -qam Theirs; git checkout -q mine; {script}; true")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Work")
    assert captured.unfinished == unfinished


async def test_files_of_a_repository_inside_the_workspace_are_kept(place: Place) -> None:
    workspace = await place.workspace()
    script = "git init -q tool; cd tool; echo x > x.txt; git add .; git commit -qm inner; echo y > y.txt"
    await shell(workspace, script)
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    assert place.git("show", f"{captured.result}:tool/x.txt") == "x\n"
    assert place.git("show", f"{captured.result}:tool/y.txt") == "y\n"
    assert "inner" in place.git("log", "--format=%s", "refs/atomic/run/1/1").split("\n")


async def test_a_fresh_workspace_has_the_commit_and_none_of_the_workers_ignored_files(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo ok > n.txt; echo cheat > node_modules/x/index.js; echo cheat > y.log; echo K=2 > .env")
    captured = await workspace.capture(place.repository, "refs/atomic/run/1/1", ADA, "Task 1")
    fresh = await place.workspace("check", captured.result)
    listed = await shell(fresh, "cat n.txt node_modules/x/index.js .env; ls; git status --short")
    assert listed == "ok\ndependency\nKEY=1\na.txt\nn.txt\nnode_modules\nsrc\n"


@pytest.mark.parametrize(
    "script",
    [
        "git update-index --assume-unchanged a.txt",
        "git update-index --skip-worktree a.txt",
        "echo 'a.txt filter=x' > .git/info/attributes; git config filter.x.clean 'echo one'",
        pytest.param("git config core.worktree /", marks=pytest.mark.ci),
        pytest.param("touch .git/index.lock", marks=pytest.mark.ci),
    ],
)
async def test_a_check_cannot_hide_that_it_has_changed_a_file(place: Place, script: str) -> None:
    workspace = await place.workspace()
    start = place.git("rev-parse", "HEAD").strip()
    async with workspace.open() as view:
        done = await view.run("sh", "-c", f"echo two > a.txt; {script}")
        assert done.exit_code == 0, done.stderr
        tree, differing = await tracked_files_in(view, workspace.base.folder, start)
    assert differing == ["a.txt"]
    assert tree != place.git("rev-parse", f"{start}^{{tree}}").strip()


async def test_only_the_named_files_are_restored(place: Place) -> None:
    write(place.project, {"t[ab].txt": "old\n", "ta.txt": "old\n", "folder/c.txt": "old\n"})
    place.git("add", "t[ab].txt", "ta.txt", "folder")
    place.git("commit", "-qm", "more")
    workspace = await place.workspace()
    await shell(workspace, "echo new | tee 't[ab].txt' ta.txt added.txt; rm -r folder; echo new > folder")
    async with workspace.open() as view:
        await restore_files_in(view, place.git("rev-parse", "HEAD").strip(), ["t[ab].txt", "added.txt", "folder/c.txt"])
    assert await shell(workspace, "cat 't[ab].txt' ta.txt folder/c.txt; ls added.txt || true") == "old\nnew\nold\n"


async def test_processes_of_a_workspace_end_with_its_view(place: Place) -> None:
    workspace = await place.workspace()
    script = "echo $$; setsid sleep 3600 > /dev/null 2>&1 & echo; exec sleep 3600"
    async with workspace.open() as view:
        program = subprocess.Popen(
            view.command("sh", "-c", script),
            cwd=place.project,
            env={**os.environ, **view.variables},
            stdout=subprocess.DEVNULL,
        )
        await eventually(lambda: _children(program.pid))
        started = _children(program.pid)
    try:
        program.wait(timeout=60)
    finally:
        program.kill()
    assert started
    await eventually(lambda: not any(is_alive(pid) for pid in started))


def _children(pid: int) -> list[int]:
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("isolation", each(OVERLAYS))
async def test_a_killed_owner_leaves_no_process_and_no_mount(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    script = """
import asyncio, sys
from pathlib import Path
from atomic.workspaces.views import open_overlay
async def main():
    root, lower, layer, own = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "True"
    async with open_overlay(root, lower, layer, own_user=own) as view:
        print(view.command("true")[6], flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""
    lower = new_repository(tmp_path / "lower", FILES)
    words = [sys.executable, "-c", script, str(project), str(lower), str(tmp_path / "layer"), str(isolation.own_user)]
    owner = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    first = int((await asyncio.to_thread(owner.stdout.readline)).decode())
    assert is_alive(first)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    await eventually(lambda: not is_alive(first))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.parametrize("isolation", each(OVERLAYS))
async def test_a_worker_cannot_reach_the_base_or_another_layer(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", FILES)
    place = Place(tmp_path, project, isolation)
    first = await place.workspace("1")
    await place.workspace("2")
    assert await shell(first, f"ls {place.home}") == ""
    await shell(first, f"umount {project} 2>/dev/null; echo hacked > a.txt")
    assert (project / "a.txt").read_text() == "one\n"


async def test_work_survives_a_view_that_was_cut_off(place: Place) -> None:
    workspace = await place.workspace()
    await shell(workspace, "echo half > half.txt")
    again = Workspace(workspace.base, workspace.folder, place.isolation, hidden=[place.home])
    await again.create(place.repository, workspace.base.commit)
    assert await shell(again, "cat half.txt") == "half\n"


async def test_a_base_that_was_cut_off_is_made_again(place: Place) -> None:
    write(place.run / "base.unfinished", {"junk": "junk"})
    base = await place.base()
    assert not (place.run / "base.unfinished").exists()
    assert (base.folder / "a.txt").read_text() == "one\n"
    assert not (base.folder / "junk").exists()


async def test_a_push_to_the_users_repository_is_refused(tmp_path: Path) -> None:
    origin = new_repository(tmp_path / "origin", FILES)
    git(tmp_path, "clone", "-q", str(origin), "project")
    place = Place(tmp_path, tmp_path / "project", await choose_isolation("clone", tmp_path / "home", origin))
    workspace = await place.workspace()
    pushed = await shell(workspace, "echo x > x; git add x; git commit -qm x; git push -f origin HEAD:main 2>&1; true")
    assert "disabled-in-a-workspace" in pushed
    assert git(origin, "log", "--format=%s") == "first\n"


async def test_include_rules_choose_the_ignored_files(place: Place) -> None:
    write(place.project, {".worktreeinclude": "*.log\ndraft.txt\n"})
    found = await find_contents(place.repository)
    assert found.paths == ("x.log",)


async def test_folders_beyond_the_size_are_left_out_and_named(place: Place) -> None:
    found = await find_contents(place.repository, max_size=8)
    assert found == Contents((".env",), 6, (("node_modules", 11),))
    said = found.left_out(8)
    assert "node_modules (11 bytes)" in said
    assert "max_size = 17 (bytes) under [workspace]" in said


async def test_small_files_come_before_big_folders(place: Place) -> None:
    write(place.project, {".env.local": "x", "src/.gitignore": "vendor/\n", "src/vendor/big": "x" * 100})
    write(place.project, {".gitignore": "node_modules/\n.env*\n"})
    found = await find_contents(place.repository, max_size=50)
    assert found.paths == (".env", ".env.local", "node_modules")
    assert found.too_big == (("src/vendor", 100),)


async def test_a_setting_can_name_a_path_inside_of_an_ignored_folder(place: Place) -> None:
    found = await find_contents(place.repository, copy=["node_modules/x/", "../home", "absent", "x.log"])
    assert found.paths == ("x.log", "node_modules/x")


async def test_the_include_file_of_a_project_in_a_sub_folder_counts(place: Place) -> None:
    write(place.project, {"src/.worktreeinclude": "*.log\n", "src/y.log": "y"})
    found = await find_contents(place.repository, project=place.project / "src")
    assert found.paths == ("src/y.log",)


async def test_an_include_file_can_name_a_part_of_an_ignored_folder(place: Place) -> None:
    write(place.project, {".worktreeinclude": "node_modules/y\n", "node_modules/y/index.js": "y"})
    found = await find_contents(place.repository)
    assert found.paths == ("node_modules/y",)


async def test_the_users_history_and_branches_are_there(place: Place) -> None:
    place.git("branch", "feature")
    commit(place.project, "second")
    workspace = await place.workspace()
    listed = await shell(workspace, "git log --format=%s; git branch --format='%(refname:short)' --list feature main")
    assert listed == "second\nfirst\nfeature\nmain\n"
