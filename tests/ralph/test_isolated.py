"""Ralph in workspaces: the user's checkout is not touched, and the run has a branch."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from atomic.ralph.prompts import PROMISE
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC
from tests.support.user_workflows import started
from tests.support.waits import eventually

KINDS = ["overlay", "clone"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_leaves_the_checkout_as_it_is_and_has_a_branch(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE, isolate=kind)
    (sandbox.project / "draft.txt").write_text("mine\n")
    before = sandbox.git("status", "--porcelain"), sandbox.git("rev-parse", "HEAD"), sandbox.git("stash", "list")
    done = await sandbox.ralph("--verify", "test -f README.md", GOAL)
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    after = sandbox.git("status", "--porcelain"), sandbox.git("rev-parse", "HEAD"), sandbox.git("stash", "list")
    assert after == before
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert sandbox.git("show", f"{branch}:part1.txt") == "part 1"
    assert sandbox.git("show", f"{branch}:part2.txt") == "part 2"
    assert not (sandbox.user.home / ".atomic" / "workspaces" / sandbox.session.name).exists()


def tasks_file(sandbox: Sandbox, *tasks: dict[str, Any]) -> str:
    path = sandbox.user.home / "tasks.json"
    path.write_text(json.dumps({"tasks": list(tasks)}))
    return str(path)


def task(id: str, **facts: Any) -> dict[str, Any]:
    return {"id": id, "title": f"Write part {id}", **facts}


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_one_bad_task_of_ten_does_not_harm_the_others(tmp_path: Path, kind: str) -> None:
    parts = [writing(str(number)) for number in range(1, 10)]
    bad = worker("bad", {"write": {"broken.txt": "BROKEN\n"}}, {"sh": "git add -A && git commit -qm Break"})
    sandbox = Sandbox(tmp_path, bad, *parts, APPROVE, isolate=kind)
    ids = [task("bad"), *(task(str(number)) for number in range(1, 10))]
    done = await sandbox.ralph("--tasks", tasks_file(sandbox, *ids), "--verify", "! grep -rqs BROKEN .")
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    assert sandbox.statuses == {"bad": "failed", **{str(number): "completed" for number in range(1, 10)}}
    assert len([one for one in sandbox.callers if one.startswith("worker")]) == 12
    files = sandbox.git("ls-tree", "--name-only", f"atomic/{sandbox.session.name[:8]}").split()
    assert files == ["README.md", *(f"part{number}.txt" for number in range(1, 10))]
    assert "BROKEN" in sandbox.git("show", f"refs/atomic/{sandbox.session.name}/bad/3:broken.txt")


@pytest.mark.ci
async def test_a_blocked_run_offers_what_is_done(tmp_path: Path) -> None:
    bad = worker("bad", {"write": {"broken.txt": "BROKEN\n"}})
    sandbox = Sandbox(tmp_path, bad, writing("1"), APPROVE, isolate="overlay")
    listed = tasks_file(sandbox, task("bad"), task("1"))
    words = (ATOMIC, "run", "ralph", "--tasks", listed, "--verify", "! grep -rqs BROKEN .")
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        assert await terminal.exit_code() == 5
        screen = await terminal.rest()
    id = sandbox.session.name[:8]
    text = " ".join(screen.split())
    assert "blocked: 1 of 2 tasks is not done and none can run: task bad failed git diff" in text
    assert text.count("task bad failed: not done after 3 attempts") == 1
    offers = screen.partition("none can run")[2].splitlines()[1:5]
    assert offers == [
        f"  git diff main...atomic/{id}     # what changed",
        f"  atomic accept {id}              # merge it into main",
        f"  atomic undo {id} 1              # take task 1 back out",
        f"  atomic salvage {id} bad         # the work of task bad",
    ]


@pytest.mark.ci
async def test_a_conflict_goes_back_to_the_worker_with_both_sides(tmp_path: Path) -> None:
    """Both tasks write the same line; the one that is merged last rebases its work when it is asked to."""
    write = "echo {0} > same.txt && git add same.txt && git commit -qm 'Write {0}'"
    solve = (
        "git rebase -q atomic-tip; printf 'one\\ntwo\\n' > same.txt; git add same.txt;"
        " GIT_EDITOR=: git rebase --continue"
    )
    workers = [worker(id, {"sh": write.format(word)}, attempt=1) for id, word in (("1", "one"), ("2", "two"))]
    solvers = [worker(id, {"sh": solve}, attempt=2) for id in ("1", "2")]
    sandbox = Sandbox(tmp_path, *workers, *solvers, APPROVE, isolate="overlay")
    listed = tasks_file(sandbox, task("1"), task("2"))
    done = await sandbox.ralph("--tasks", listed, "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.git("show", f"atomic/{sandbox.session.name[:8]}:same.txt") == "one\ntwo"
    assert " came back from its merge to the worker, and was solved: conflicts with other tasks in same.txt." in (
        sandbox.report
    )
    [again] = [one["prompt"] for one in sandbox.prompts if one["role"] == "worker" and one["attempt"] == "2"]
    assert all(word in again for word in ("<<<<<<<", ">>>>>>>", "git rebase atomic-tip"))


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_yolo_works_in_a_workspace_until_its_checks_are_green(tmp_path: Path, kind: str) -> None:
    first = {"role": "worker", "times": 1, "do": [{"write": {"a.txt": "a\n"}}, {"say": PROMISE}]}
    second = {"role": "worker", "do": [{"write": {"b.txt": "b\n"}}, {"say": PROMISE}]}
    sandbox = Sandbox(tmp_path, first, second, isolate=kind)
    done = await sandbox.ralph("--yolo", "--verify", "test -f b.txt", GOAL)
    assert done.status == ("completed", "done", 0), done.end
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert sandbox.git("ls-tree", "--name-only", branch).split() == ["README.md", "a.txt", "b.txt"]
    assert sandbox.git("status", "--porcelain") == ""
    assert f"atomic accept {sandbox.session.name[:8]}" in done.end["message"]


@pytest.mark.ci
async def test_a_killed_run_continues_in_its_workspace(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, isolate="overlay")
    home = sandbox.user.home
    dying = worker("1", {"sh": f"echo half > half.txt; touch {home}/began; sleep 600"}, times=1)
    finishing = worker("1", {"sh": "test -f half.txt && echo whole > whole.txt"})
    sandbox.play(dying, finishing, APPROVE)
    listed = tasks_file(sandbox, task("1"))
    async with started(sandbox.user, "run", "ralph", "--json", "--tasks", listed) as run:
        await eventually((home / "began").exists)
        run.signal(signal.SIGKILL)
        await run.over()
    assert not (sandbox.project / "half.txt").exists()
    done = await sandbox.resume()
    assert done.status == ("completed", "done", 0), done.end
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert sandbox.git("ls-tree", "--name-only", branch).split() == ["README.md", "half.txt", "whole.txt"]
    assert not (home / ".atomic" / "workspaces" / sandbox.session.name).exists()


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_a_recording_has_the_files_of_a_workspace_and_plays_them(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), APPROVE, isolate=kind)
    listed = tasks_file(sandbox, task("1"))
    recording = sandbox.user.home / "recording.jsonl"
    done = await sandbox.ralph("--record", str(recording), "--tasks", listed)
    assert done.status == ("completed", "done", 0), done.end
    calls = [json.loads(line) for line in recording.read_text().splitlines()[1:]]
    [work] = [call for call in calls if call["role"] == "worker"]
    assert "part 1" in "".join([*work["commits"], work["patch"]])
    again = await sandbox.ralph("--agent", f"replay:{recording}", "--tasks", listed)
    assert again.status == ("completed", "done", 0), again.end
    assert sandbox.git("show", f"atomic/{again.end['run'][:8]}:part1.txt") == "part 1"


@pytest.mark.ci
async def test_a_worker_begins_the_next_task_while_the_last_one_is_checked(tmp_path: Path) -> None:
    """The check of task 1 and the turn of task 2 wait until the turn of task 3 has begun."""
    sign = tmp_path / "begun"
    wait = f"until test -f {sign} || test $((n+=1)) -gt 1200; do sleep 0.05; done; test -f {sign}"
    two = worker("2", {"sh": wait}, {"write": {"part2.txt": "2"}})
    three = worker("3", {"sh": f"touch {sign}"}, {"write": {"part3.txt": "3"}})
    sandbox = Sandbox(tmp_path, writing("1"), two, three, isolate="auto")
    listed = tasks_file(sandbox, task("1"), task("2"), task("3"))
    check = f"test ! -f part1.txt || {{ {wait}; }}"
    done = await sandbox.ralph(
        "--tasks", listed, "--workers", "2", "--verify", check, "--review-rounds", "0", "--gate-timeout", "5m"
    )
    assert done.status == ("completed", "done", 0), (done.stderr, done.end)
    assert len(sandbox.prompts) == 3
