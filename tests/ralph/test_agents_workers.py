"""Ralph with four workers on real agents: each works in its own copy, at the same time."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atomic.testing import Script
from tests.ralph.agents import FIND_FOLDER, FOLDER, Stage, asked_the_user, stage_for
from tests.ralph.nim import APPROVAL
from tests.support.checkouts import checkout_state
from tests.support.user import processes

DONE = ("completed", "done", 0)
LIMIT = 1800.0  # seconds; seven real agents on a busy machine
CHECK = "sh check.sh"
# Red if a part is unfinished.
CHECK_SCRIPT = """\
for part in part*.txt; do
    [ ! -e "$part" ] || grep -q finished "$part" || exit 1
done
"""
INDEPENDENT = ("1", "2", "3", "4")
CONFLICTING = ("5", "6")  # both begin when the others have landed, and add the same first line
TASKS = [
    *({"id": id, "title": f"Write part {id}"} for id in INDEPENDENT),
    *({"id": id, "title": f"Add {id} to the list", "blocked_by": list(INDEPENDENT)} for id in CONFLICTING),
]
# What a command of an agent sees: its folder, and the namespaces of itself and of the agent's program.
LOOK = (
    f'{FIND_FOLDER}; echo "copy=$ATOMIC_WORKSPACE";'
    ' echo "view=$(readlink /proc/self/ns/mnt) $(readlink /proc/$PPID/ns/mnt)"'
)
SOLVE = (
    "git rebase -q atomic-tip; sort -u -o list.txt list.txt; grep -v '[<=>]' list.txt > both; mv both list.txt;"
    " git add list.txt; GIT_EDITOR=: git rebase --continue"
)


def scripts(stage: Stage) -> dict[str, Script]:
    """Return turns that write with the agent's own tools, by the path of the copy."""
    bash = stage.words.bash
    write = stage.words.write
    at = Path(FOLDER)
    played: dict[str, Script] = {
        f"worker.{id}": [
            [bash(LOOK)],
            [write(at / f"part{id}.txt", f"part {id}: finished\n")],
            # The last task leaves its file to Atomic.
            [bash("true" if id == "4" else f"git add part{id}.txt && git commit -qm 'Write part {id}'")],
            "All is done, and it is excellent.",
        ]
        for id in INDEPENDENT
    }
    for id in CONFLICTING:
        played[f"worker.{id}.1"] = [
            [bash(LOOK)],
            [write(at / "list.txt", f"{id}\n")],
            [bash(f"git add list.txt && git commit -qm 'Add {id}'")],
            "Done.",
        ]
        played[f"worker.{id}"] = [[bash(SOLVE)], "Both are in the list."]
    return {**played, "reviewer": [[stage.words.custom("submit_review", APPROVAL)], "Done."]}


# One run takes half a minute of CPU; OpenCode takes twice as much.
OFTEN = [("claude", "overlay"), ("copilot", "clone")]
RARELY = [("claude", "clone"), ("copilot", "overlay"), ("opencode", "overlay"), ("opencode", "clone")]
CASES = [
    *(pytest.param(*case, marks=pytest.mark.ci) for case in OFTEN),
    *(pytest.param(*case, marks=pytest.mark.full) for case in RARELY),
]


@pytest.fixture
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage_for(tmp_path, request.param) as stage:
        temporary = tmp_path / "tmp"
        temporary.mkdir()
        stage.user.env["TMPDIR"] = str(temporary)
        (stage.project / "check.sh").write_text(CHECK_SCRIPT)
        (stage.project / "todo.json").write_text(json.dumps({"tasks": TASKS}))
        stage.commit_all("Prepare")
        yield stage
        assert not [*temporary.glob("atomic-*")]


@pytest.mark.parametrize(("stage", "kind"), CASES, indirect=["stage"])
async def test_four_workers_work_at_the_same_time_in_their_own_copies(stage: Stage, kind: str) -> None:
    (stage.project / "draft.txt").write_text("mine\n")
    before = checkout_state(stage.project)
    stage.model.play(scripts(stage))
    stage.model.gather(*(f"worker.{id}" for id in INDEPENDENT))
    stage.model.gather(*(f"worker.{id}.1" for id in CONFLICTING))
    outcome = await stage.ralph(
        "--isolate", kind, "--workers", "4", "--verify", CHECK, "--tasks", "todo.json", timeout=LIMIT
    )

    assert outcome.status == DONE, outcome.end["message"]
    assert asked_the_user(outcome) == []
    assert before.changes_to(checkout_state(stage.project)) == []
    check_turns(stage)
    check_proofs(stage)
    check_copies(stage, kind)
    await stage.is_quiet()
    check_nothing_is_left(stage)


def check_turns(stage: Stage) -> None:
    """Check that each task had one turn, and the conflict one more."""
    begun = stage.model.begun
    assert sorted(begun[:4]) == [f"worker {id} 1" for id in INDEPENDENT]
    assert sorted(begun[4:6]) == [f"worker {id} 1" for id in CONFLICTING]
    assert begun[6:] in ([f"worker {id} 2", "reviewer 1"] for id in CONFLICTING)


def check_proofs(stage: Stage) -> None:
    """Check that each task is proven alone, and again with the others."""
    assert set(stage.statuses.values()) == {"completed"}
    proofs = {task["id"]: stage.evidence(str(task["id"])) for task in TASKS}
    start = stage.git("rev-parse", "HEAD")
    landed = stage.git("rev-list", f"{start}..{stage.branch}").split()
    assert sorted(proof["merged"] for proof in proofs.values()) == sorted(landed)
    for proof in proofs.values():
        assert proof["status"] == "passed"
        assert [(check["command"], check["exit_code"]) for check in proof["gates"]] == [(CHECK, 0)]
    alone = [stage.git("diff", "--name-only", start, proofs[id]["commit"]) for id in INDEPENDENT]
    assert alone == [f"part{id}.txt" for id in INDEPENDENT]
    moved = [proof for id, proof in proofs.items() if id in INDEPENDENT and proof["merged"] != proof["commit"]]
    assert len(moved) == len(INDEPENDENT) - 1  # the branch moved to the first one itself
    for proof in moved:
        assert [(check["command"], check["exit_code"]) for check in proof["merged_checks"]] == [(CHECK, 0)]
    assert stage.git("show", f"{stage.branch}:list.txt").split() == [*CONFLICTING]
    assert all(stage.git("show", f"{stage.branch}:part{id}.txt") == f"part {id}: finished" for id in INDEPENDENT)


def check_copies(stage: Stage, kind: str) -> None:
    """Check that each worker's program ran in the worker's own copy."""
    seen = {
        call.script: dict(re.findall(r"^(folder|copy|view)=(.+?)\s*$", call.tool_result, re.MULTILINE))
        for call in stage.model.calls
        if call.turn == 1 and "view=" in call.tool_result
    }
    assert len(seen) == len(INDEPENDENT) + len(CONFLICTING)
    folders = {one["folder"] for one in seen.values()}
    if kind == "overlay":
        assert folders == {str(stage.project)}
    else:
        assert len(folders) == len(seen)
        assert not any(Path(folder).is_relative_to(stage.project) for folder in folders)
    assert len({one["copy"] for one in seen.values()}) == len(seen)
    assert all(own == program for own, program in (one["view"].split() for one in seen.values()))
    # Only of views that exist at the same time the numbers differ.
    views = {seen[f"worker.{id}"]["view"].split()[0] for id in INDEPENDENT}
    assert len(views | {os.readlink("/proc/self/ns/mnt")}) == len(INDEPENDENT) + 1


def check_nothing_is_left(stage: Stage) -> None:
    assert processes(stage.user.home) == {}
    assert str(stage.user.home.parent) not in Path("/proc/self/mountinfo").read_text()
    assert not [*(stage.user.home / ".atomic" / "workspaces").glob("*")]
    # OpenCode would keep a copy of the files of each folder, and share it among the workers.
    assert not [*(stage.user.home / ".local/share/opencode/snapshot").glob("*")]
