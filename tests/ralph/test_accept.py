"""The user gets the work of a run: `--accept` at its end, and `atomic accept --fix` if both sides have changed."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomic.processes import ExecResult, running
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.support.repositories import content, state
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, complaint
from tests.support.waits import eventually

KINDS = ["overlay", "clone"]
GREEN = ("--verify", "test -f README.md")


class Accepting(Sandbox):
    """A sandbox with one task, whose run is followed by commands about its branch."""

    def __init__(self, folder: Path, *script: Mapping[str, Any], isolate: str = "clone") -> None:
        super().__init__(folder, *script, isolate=isolate)
        self.run = ""

    @property
    def short(self) -> str:
        return self.run[:8]

    @property
    def branch(self) -> str:
        return f"atomic/{self.short}"

    @property
    def runs(self) -> set[str]:
        return {folder.name for folder in (self.user.home / ".atomic" / "sessions").iterdir()}

    def list_tasks(self, *ids: str) -> str:
        path = self.user.home / "tasks.json"
        path.write_text(json.dumps({"tasks": [{"id": id, "title": f"Write part {id}"} for id in ids]}))
        return str(path)

    async def work(self, *words: str) -> dict[str, Any]:
        """Run the task of this project, and return the event of the end."""
        done = await self.ralph("--tasks", self.list_tasks("1"), *(words or GREEN))
        assert done.status == ("completed", "done", 0), (done.stderr, done.end)
        self.run = self.session.name
        return done.end

    def commit_by_user(self, **files: str) -> str:
        for name, text in files.items():
            (self.project / f"{name}.txt").write_text(text)
        self.commit_all("Work of the user")
        return self.git("rev-parse", "HEAD")

    async def accept(self, *flags: str) -> ExecResult:
        return await self.user.atomic("accept", self.short, *flags)

    def snapshot(self) -> tuple[Any, ...]:
        return state(self.project), content(self.project), self.git("for-each-ref"), self.git("ls-files", "--stage")


def fixer(*steps: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    return {"role": "fixer", "task": "merge", "do": [*steps, {"say": "Resolved."}], **facts}


# -- --accept ---------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_accept_at_the_end_moves_the_users_branch_forward(tmp_path: Path, kind: str) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE, isolate=kind)
    start = sandbox.git("rev-parse", "HEAD")
    end = await sandbox.work("--accept", *GREEN)
    tip = sandbox.git("rev-parse", sandbox.branch)
    assert sandbox.git("rev-parse", "HEAD", "main").split() == [tip, tip]
    assert (sandbox.project / "part1.txt").read_text() == "part 1\n"
    assert sandbox.git("status", "--porcelain") == ""
    assert end["message"].splitlines()[1:] == [
        f"  merged into main, which is at {tip[:12]}",
        f"  git diff {start[:12]}...{sandbox.branch}     # what changed",
    ]
    assert f"was merged into `main`, which was moved from `{start[:12]}` to `{tip[:12]}`" in sandbox.report
    assert "atomic accept" not in sandbox.report


async def test_accept_at_the_end_leaves_a_branch_that_has_moved(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path)
    home = shlex.quote(str(sandbox.user.home))
    wait = f"touch {home}/began; while ! test -e {home}/go; do sleep 0.1; done"
    sandbox.play(worker("1", {"write": {"part1.txt": "x\n"}}, {"sh": wait}))
    run = asyncio.create_task(sandbox.work("--accept", "--review-rounds", "0", *GREEN))
    await eventually((sandbox.user.home / "began").exists)
    sandbox.git("commit", "-q", "--allow-empty", "-m", "mine")
    (sandbox.user.home / "go").touch()
    end = await run
    assert sandbox.git("log", "-1", "--format=%s") == "mine"
    why = f"main has commits that {sandbox.branch} does not have: atomic accept {sandbox.short} merges both"
    assert f"\n  not merged: {why}\n" in end["message"]
    assert f"`--accept` did not merge it: {why}" in sandbox.report


async def test_accept_at_the_end_overwrites_no_file_of_the_user(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE)
    (sandbox.project / "part1.txt").write_text("mine\n")
    end = await sandbox.work("--accept", *GREEN)
    assert (sandbox.project / "part1.txt").read_text() == "mine\n"
    assert (
        f"not merged: The merge would overwrite files that git does not track: part1.txt. Move them away, then atomic"
        f" accept {sandbox.short}\n" in end["message"]
    )


@pytest.mark.ci
async def test_the_last_lines_of_a_run_are_commands_in_a_column(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE)
    end = await sandbox.work()
    id = sandbox.short
    assert end["message"].splitlines()[1:] == [
        f"  git diff main...atomic/{id}     # what changed",
        f"  atomic accept {id}              # merge it into main",
        f"  atomic undo {id} 1              # take task 1 back out",
    ]
    assert f"atomic accept {id}           # merge it into main\n" in sandbox.report


@pytest.mark.ci
async def test_a_run_offers_only_work_that_was_not_accepted(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), worker("2", attempt="1"))
    first = await sandbox.ralph(
        "--tasks", sandbox.list_tasks("1", "2"), "--workers", "1", "--max-iterations", "2", *GREEN
    )
    assert first.status[0] == "paused", first.end
    sandbox.run = sandbox.session.name
    offer = f"atomic accept {sandbox.short}"
    assert offer in sandbox.report
    assert (await sandbox.accept("--squash")).exit_code == 0
    again = await sandbox.resume()
    assert again.status[0] == "paused", again.end
    assert offer not in sandbox.report
    sandbox.play(writing("2"), APPROVE)
    done = await sandbox.resume("--max-iterations", "9")
    assert done.status == ("completed", "done", 0), done.end
    assert offer in done.end["message"]


# -- --fix ------------------------------------------------------------------------------------------------------------


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_a_fixer_resolves_a_conflict_and_the_merge_is_accepted(tmp_path: Path, kind: str) -> None:
    solving = fixer({"write": {"part1.txt": "part 1\npart of the user\n"}})
    sandbox = Accepting(tmp_path, writing("1"), solving, APPROVE, isolate=kind)
    await sandbox.work()
    tip = sandbox.git("rev-parse", sandbox.branch)
    head = sandbox.commit_by_user(part1="part of the user\n")
    before = sandbox.snapshot()
    refused = await sandbox.accept()
    assert (refused.exit_code, complaint(refused)) == (
        1,
        (
            f"{sandbox.branch} and main conflict in part1.txt, and nothing was changed: atomic accept"
            f" {sandbox.short} --fix lets an agent resolve it in a workspace, or git merge {sandbox.branch} by hand in"
            f" {sandbox.project}"
        ),
    )
    assert sandbox.snapshot() == before
    done = await sandbox.accept("--fix")
    assert done.exit_code == 0, done
    merge = sandbox.git("rev-parse", "HEAD")
    assert done.stdout.splitlines()[-1] == (
        f"Merged {sandbox.branch} into main as a fast-forward: 1 file changed, main is at {merge[:12]}"
    )
    assert sandbox.git("rev-parse", "HEAD^1", "HEAD^2", sandbox.branch).split() == [head, tip, merge]
    assert (sandbox.project / "part1.txt").read_text() == "part 1\npart of the user\n"
    assert sandbox.git("status", "--porcelain") == ""
    assert sandbox.git("log", "-1", "--format=%s%n%b").splitlines()[:2] == [
        f"Merge branch 'main' into {sandbox.branch}",
        "* 1: Write part 1",
    ]
    assert sandbox.git("log", "--format=%s", f"{head}..").count("unfinished") == 0
    [asked] = [one["prompt"] for one in sandbox.prompts if one["role"] == "fixer"]
    assert all(text in asked for text in (f"<<<<<<< {head}", f">>>>>>> {tip}", "part 1", "part of the user"))
    [merging] = sandbox.runs - {sandbox.run}
    assert sandbox.git("for-each-ref", "--format=%(refname)", f"refs/atomic/{merging}/merge/1")
    assert sandbox.git("for-each-ref", "--format=%(refname:short)", "refs/heads/atomic") == sandbox.branch
    said = f"{done.stdout}{done.stderr}"
    assert not any(word in said for word in ("split the goal", "0 of 0 tasks", "atomic accept", "--review-rounds"))
    assert f"{sandbox.branch} and main are merged in a workspace, verified by test -f README.md" in said
    assert not list((sandbox.user.home / ".atomic" / "workspaces").iterdir())


@pytest.mark.ci
async def test_a_clean_merge_that_the_checks_refuse_goes_to_a_fixer(tmp_path: Path) -> None:
    """Each side is green, and both together are red."""
    sandbox = Accepting(tmp_path, writing("1"), fixer({"delete": ["mine.txt"]}), APPROVE)
    await sandbox.work("--verify", "! { test -f part1.txt && test -f mine.txt; }")
    sandbox.commit_by_user(mine="mine\n")
    done = await sandbox.accept("--fix")
    assert done.exit_code == 0, done
    assert sorted(sandbox.git("ls-tree", "--name-only", "HEAD").split()) == ["README.md", "part1.txt"]
    [asked] = [one["prompt"] for one in sandbox.prompts if one["role"] == "fixer"]
    assert "test -f mine.txt" in asked


@pytest.mark.ci
async def test_a_clean_merge_with_green_checks_needs_no_agent(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE)
    await sandbox.work()
    head = sandbox.commit_by_user(mine="mine\n")
    calls = len(sandbox.prompts)
    done = await sandbox.accept("--fix")
    assert done.exit_code == 0, done
    assert len(sandbox.prompts) == calls
    assert sandbox.git("rev-parse", "HEAD^1") == head
    assert "No check has run" not in done.stdout + done.stderr


@pytest.mark.ci
async def test_the_checks_run_on_a_branch_that_a_task_was_taken_out_of(tmp_path: Path) -> None:
    """The user's branch has not moved, and the second task needs the first one."""
    repair = fixer({"write": {"part1.txt": "by the fixer\n"}})
    sandbox = Accepting(tmp_path, writing("1"), writing("2"), repair, APPROVE)
    needs = "! test -e part2.txt || test -e part1.txt"
    done = await sandbox.ralph("--tasks", sandbox.list_tasks("1", "2"), "--workers", "1", "--verify", needs)
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    sandbox.run = sandbox.session.name
    assert (await sandbox.user.atomic("undo", sandbox.short, "1")).exit_code == 0
    accepted = await sandbox.accept("--fix")
    assert accepted.exit_code == 0, accepted
    assert (sandbox.project / "part1.txt").read_text() == "by the fixer\n"
    assert "Task 1 was undone, so the merge does not have it" in accepted.stdout
    assert "No check has run" not in accepted.stdout


@pytest.mark.ci
async def test_a_branch_that_the_user_switches_to_meanwhile_is_not_merged_into(tmp_path: Path) -> None:
    """The fixer stands for the user, who works in the checkout at the same time."""
    sandbox = Accepting(tmp_path, writing("1"), APPROVE)
    await sandbox.work()
    home = sandbox.user.home
    wait = f"touch {home}/began; while ! test -f {home}/switched; do sleep 0.1; done"
    sandbox.play(writing("1"), APPROVE, fixer({"sh": f"{wait}; echo both > part1.txt"}))
    sandbox.git("branch", "release")
    head = sandbox.commit_by_user(part1="part of the user\n")
    release = sandbox.git("rev-parse", "release")
    words = (str(ATOMIC), "accept", sandbox.short, "--fix")
    async with running(*words, cwd=sandbox.project, env=sandbox.user.env) as program:
        await eventually((home / "began").exists)
        sandbox.git("switch", "-q", "release")
        (home / "switched").touch()
        assert await program.wait() == 1
    assert sandbox.git("rev-parse", "release", "main").split() == [release, head]
    assert not (sandbox.project / "part1.txt").exists()
    sandbox.git("switch", "-q", "main")
    assert (await sandbox.accept()).exit_code == 0
    assert (sandbox.project / "part1.txt").read_text() == "both\n"


@pytest.mark.ci
async def test_markers_that_are_left_go_back_to_the_fixer(tmp_path: Path) -> None:
    idle = fixer({"write": {"other.txt": "x\n"}}, attempt=1)
    solving = fixer({"write": {"part1.txt": "both\n"}}, attempt=2)
    sandbox = Accepting(tmp_path, writing("1"), idle, solving, APPROVE)
    await sandbox.work()
    sandbox.commit_by_user(part1="part of the user\n")
    done = await sandbox.accept("--fix")
    assert done.exit_code == 0, done
    assert [one for one in sandbox.callers if one.startswith("fixer")] == ["fixer merge 1", "fixer merge 2"]
    assert "conflict markers are left in part1.txt" in sandbox.prompts[-1]["prompt"]
    assert (sandbox.project / "part1.txt").read_text() == "both\n"


@pytest.mark.ci
async def test_a_conflict_that_no_fixer_resolves_changes_nothing(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), fixer(), APPROVE)
    await sandbox.work()
    head = sandbox.commit_by_user(part1="part of the user\n")
    tip = sandbox.git("rev-parse", sandbox.branch)
    done = await sandbox.accept("--fix")
    assert (done.exit_code, "conflict markers are left in part1.txt" in done.stderr) == (5, True)
    assert sandbox.git("rev-parse", "main", sandbox.branch).split() == [head, tip]
    assert len([one for one in sandbox.callers if one.startswith("fixer")]) == 3


@pytest.mark.ci
async def test_a_killed_merge_continues_and_loses_nothing(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE, isolate="overlay")
    await sandbox.work()
    home = sandbox.user.home
    dying = fixer({"sh": f"echo half > half.txt; touch {home}/began; sleep 600"}, times=1)
    continuing = fixer({"sh": "test -f half.txt && echo both > part1.txt"})
    sandbox.play(writing("1"), APPROVE, dying, continuing)
    sandbox.commit_by_user(part1="part of the user\n")
    words = (str(ATOMIC), "accept", sandbox.short, "--fix")
    async with running(*words, cwd=sandbox.project, env=sandbox.user.env) as program:
        await eventually((home / "began").exists)
        os.kill(program.pid, signal.SIGKILL)
    runs = sandbox.runs
    done = await sandbox.accept("--fix")
    assert done.exit_code == 0, done
    assert sandbox.runs == runs  # the same run, continued
    assert (sandbox.project / "half.txt").read_text() == "half\n"
    assert (sandbox.project / "part1.txt").read_text() == "both\n"


@pytest.mark.ci
async def test_the_caps_of_the_run_hold_for_its_merge(tmp_path: Path) -> None:
    paid = worker("1", {"write": {"part1.txt": "part 1\n"}}, {"cost": 0.9})
    sandbox = Accepting(tmp_path, paid, fixer({"cost": 0.9}), isolate="clone")
    await sandbox.work("--max-cost", "0.90", "--review-rounds", "0", *GREEN)
    head = sandbox.commit_by_user(part1="part of the user\n")
    calls = len(sandbox.prompts)
    done = await sandbox.accept("--fix")
    assert (done.exit_code, "--max-cost is reached" in done.stderr) == (6, True), done
    assert "has used up its --max-cost, so no fixer can start" in done.stderr
    assert "--max-cost 1" in done.stderr
    assert len(sandbox.prompts) == calls
    assert sandbox.git("rev-parse", "main") == head


@pytest.mark.ci
async def test_files_of_the_user_are_in_the_way_before_anything_is_paid(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), fixer(), APPROVE)
    await sandbox.work()
    sandbox.commit_by_user(part1="part of the user\n")
    (sandbox.project / "part1.txt").write_text("not committed\n")
    before = sandbox.snapshot()
    done = await sandbox.accept("--fix")
    assert (done.exit_code, complaint(done)) == (
        1,
        (
            "The merge would change files with uncommitted changes: part1.txt. Commit or stash them, then atomic accept"
            f" {sandbox.short}"
        ),
    )
    assert sandbox.snapshot() == before
    assert sandbox.runs == {sandbox.run}


@pytest.mark.ci
async def test_at_a_terminal_a_fixer_is_offered_and_enter_means_no(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), fixer({"write": {"part1.txt": "both\n"}}), APPROVE)
    await sandbox.work()
    head = sandbox.commit_by_user(part1="part of the user\n")
    words = [ATOMIC, "accept", sandbox.short]
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("Start it? [y/N]")
        terminal.type("\n")
        assert await terminal.exit_code() == 1
    assert sandbox.git("rev-parse", "main") == head
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("[y/N]")
        terminal.type("y\n")
        assert await terminal.exit_code() == 0
    assert (sandbox.project / "part1.txt").read_text() == "both\n"


@pytest.mark.ci
async def test_a_clean_merge_is_made_at_once_unless_the_user_wants_the_checks(tmp_path: Path) -> None:
    sandbox = Accepting(tmp_path, writing("1"), APPROVE)
    await sandbox.work()
    head = sandbox.commit_by_user(mine="mine\n")
    words = [ATOMIC, "accept", sandbox.short]
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("Run the checks first? [y/N]")
        terminal.type("\n")
        assert await terminal.exit_code() == 0
        assert "No check has run on the merge" in " ".join((await terminal.rest()).split())
    assert sandbox.git("rev-parse", "HEAD^1") == head
    assert sandbox.runs == {sandbox.run}
