"""Ralph on real agents: a prompt, a spec, a list of tasks or of features becomes a game."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atomic.tasks import TaskList
from atomic.testing import Call, Script
from tests.ralph.agents import AGENT_NAMES, Stage, asked_the_user, stage_for
from tests.ralph.nim import APPROVAL, FEATURES, FILES, GATE, GOAL, PLAN, RESEARCH, SPEC
from tests.ralph.sandbox import Outcome
from tests.ralph.test_publishing import ADDRESS, GH, SSH, URL

pytestmark = pytest.mark.ci

DONE = ("completed", "done", 0)
CAST = ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
WORK = CAST[1:]
PROMISE = "<promise>COMPLETE</promise>"


@pytest.fixture(params=AGENT_NAMES)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage_for(tmp_path, request.param) as stage:
        yield stage


def parts(stage: Stage, *, with_tools: bool) -> dict[str, Script]:
    """Return good turns; plan and review are submitted by a tool or in the answer."""
    custom = stage.words.custom
    return {
        "planner": [[custom("submit_plan", PLAN)], "Handed in."] if with_tools else f"Here:\n{json.dumps(PLAN)}",
        "worker.1": stage.work(FILES["1"]),
        "worker.2": stage.work(FILES["2"]),
        "reviewer": [[custom("submit_review", APPROVAL)], "Done."] if with_tools else json.dumps(APPROVAL),
    }


def check_game(stage: Stage, outcome: Outcome) -> None:
    """Check that the work is proven, no permission was requested, and the game can be played."""
    assert outcome.status == DONE, outcome.end["message"]
    assert asked_the_user(outcome) == []
    assert stage.subjects == ["Write nim.py test_nim.py", "Write table.py test_table.py"]
    assert set(stage.statuses.values()) == {"completed"}
    proofs = [stage.evidence(task) for task in stage.statuses]
    for proof in proofs:
        assert (proof["status"], proof["gates"][0]["command"], proof["gates"][0]["exit_code"]) == ("passed", GATE, 0)
    stage.git("merge", "-q", "--ff-only", stage.branch)
    assert proofs[-1]["merged"] == stage.git("rev-parse", "HEAD")
    assert stage.git("status", "--short") == ""
    assert "Write the table to play at" in stage.report
    check_play(stage.project)


def check_play(project: Path) -> None:
    words = ["/usr/bin/python3", "-B", "table.py"]
    done = subprocess.run(words, cwd=project, input="1 1\n2 2\n", capture_output=True, text=True, check=True)
    assert done.stdout == "player 2 wins\n"


# How it is started


async def test_a_prompt_becomes_a_game(stage: Stage) -> None:
    stage.model.play(parts(stage, with_tools=True))
    check_game(stage, await stage.ralph("--verify", GATE, GOAL))
    assert stage.model.begun == CAST
    assert "The plan was accepted: 2 tasks." in stage.model.tool_results("planner")
    assert GOAL in stage.model.asked("planner").user_text
    assert "excellent" not in stage.model.asked("reviewer").user_text
    assert [call["role"] for call in stage.logged] == ["planner", "worker", "worker", "reviewer"]


@pytest.mark.full
async def test_a_spec_becomes_a_game(stage: Stage) -> None:
    stage.leaves("specs/nim.md", SPEC)
    stage.model.play(parts(stage, with_tools=False))
    check_game(stage, await stage.ralph("--verify", GATE, "specs/nim.md"))
    assert stage.model.begun == CAST
    assert "LEFT-BY-SPEC" in stage.model.asked("planner").user_text


@pytest.mark.full
async def test_a_task_file_becomes_a_game(stage: Stage) -> None:
    file = stage.leaves("todo.json", PLAN)
    before = file.read_bytes()
    stage.model.play(parts(stage, with_tools=True))
    check_game(stage, await stage.ralph("--verify", GATE, "--tasks", "todo.json"))
    assert stage.model.begun == WORK
    assert file.read_bytes() == before


@pytest.mark.full
async def test_a_feature_list_becomes_a_pull_request(stage: Stage) -> None:
    stage.leaves("features.json", FEATURES)
    remote = stage.user.bin.parent / "remote.git"  # where the stand-in for ssh looks
    stage.git("init", "-q", "--bare", "-b", "main", str(remote))
    stage.git("push", "-q", str(remote), "main")
    stage.git("remote", "add", "origin", ADDRESS)
    for name, program in (("gh", GH), ("ssh", SSH)):
        (stage.user.bin / name).write_text(program)
        (stage.user.bin / name).chmod(0o755)
    stage.model.play(parts(stage, with_tools=False))
    check_game(stage, await stage.ralph("--pr", "--verify", GATE, "--workers", "1", "--feature-list", "features.json"))
    assert stage.model.begun == WORK
    branch = f"atomic/{stage.session.name[:8]}"
    assert stage.git("rev-parse", branch, cwd=remote) == stage.git("rev-parse", "HEAD")
    asked = [json.loads(line) for line in (stage.user.bin / "asked.jsonl").read_text().splitlines()]
    assert [words[:2] for words in asked if words[0] == "pr"] == [["pr", "list"], ["pr", "create"]]
    assert (stage.about["pr"], URL in stage.report) == (URL, True)


# The chain


def read(path: Path) -> Call:
    name = str(path)
    return Call({"Read": {"file_path": name}, "read": {"filePath": name}, "view": {"path": name}})


def chain(stage: Stage) -> dict[str, Script]:
    """Return turns that follow each skill: read the file of the one before, write the next."""
    research = stage.project / "research/docs/nim.md"
    spec = stage.project / "specs/nim.md"
    write = stage.words.write
    folders = stage.words.bash("mkdir -p research/docs specs")
    return {
        "research": [[read(stage.project / "README.md"), folders], [write(research, RESEARCH)], "Written."],
        "spec": [[read(research)], [write(spec, SPEC)], "Written."],
        "list": [[read(spec)], [write(stage.project / "research/tasks.json", json.dumps(PLAN))], "Written."],
    }


async def test_research_spec_and_list_lead_to_a_game(stage: Stage) -> None:
    stage.model.play({**chain(stage), **parts(stage, with_tools=True)})
    for skill, script in (("research-codebase", "research"), ("create-spec", "spec"), ("create-feature-list", "list")):
        done = await stage.user.atomic("-p", f"/{skill} @@{script}@@ Nim")
        assert (done.exit_code, done.stdout) == (0, "Written.\n"), done.stderr
    results = {call.script: call.tool_result for call in stage.model.calls if call.turn == 1}
    assert "LEFT-BY-RESEARCH" in results["spec"]
    assert "LEFT-BY-SPEC" in results["list"]
    assert TaskList.read(stage.project / "research/tasks.json").problems == ()
    stage.commit_all("Add the documents")
    check_game(stage, await stage.ralph("--verify", GATE))
    assert stage.model.begun == WORK


# Yolo


async def test_yolo_ends_on_the_promise_and_on_nothing_else(stage: Stage) -> None:
    first = stage.work(FILES["1"])
    second = stage.work(FILES["2"])
    stage.model.play(
        {
            "worker.1": [*first[:-1], f"It is COMPLETE, nearly. I will say {PROMISE} later."],
            "worker.2": [*second[:-1], f"Soon I say\n```\n{PROMISE}\n```"],
            "worker.3": f"Nothing is left.\n\n{PROMISE}\n",
        }
    )
    outcome = await stage.ralph("--yolo", "--max-iterations", "2", "--verify", GATE, GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert stage.model.begun == ["worker 1", "worker 2"]
    outcome = await stage.resume("--max-iterations", "0")
    assert outcome.status == DONE, outcome.end["message"]
    assert stage.model.begun == ["worker 1", "worker 2", "worker 3"]
    assert stage.evidence("yolo")["status"] == "passed"
    stage.git("merge", "-q", "--ff-only", stage.branch)
    check_play(stage.project)
