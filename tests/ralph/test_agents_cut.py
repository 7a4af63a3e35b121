"""Real agents in the middle of work: signals, questions, two runs, several providers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from itertools import product
from pathlib import Path

import pytest

from atomic.testing import CallState, ModelCall, Stall
from atomic.testing.conformance import AGENTS
from tests.ralph.agents import AGENT_NAMES, Stage, cue_in, stage_for
from tests.ralph.nim import APPROVAL, FILES, GATE, GOAL, PLAN
from tests.ralph.test_agents import DONE, check_game, parts
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC

pytestmark = pytest.mark.ci

COLOUR = {"text": "Which colour?", "header": "Colour", "options": ["Blue", "Red"]}


@pytest.fixture(params=AGENT_NAMES)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stage]:
    async with stage_for(tmp_path, request.param) as stage:
        yield stage


async def cut(stage: Stage, number: int, script: str, *words: str) -> int:
    """Send a signal when the model leaves a script hanging; the exit code. No process is left."""
    async with stage.running(*words) as run:
        await stage.model.wait_for(lambda call: call.state is CallState.STALLED and call.script == script, timeout=600)
        run.signal(number)
        code = await run.over()
    await stage.is_quiet()
    return code


async def test_a_run_continues_after_each_signal_and_repeats_nothing(stage: Stage) -> None:
    whole = parts(stage, with_tools=True)
    half = [[stage.words.write(stage.project / "half.txt", "half\n")], [Stall()]]
    tidy = [[stage.words.bash("rm half.txt")], *stage.work(FILES["2"])]

    stage.model.play({**whole, "worker.2": half})
    assert await cut(stage, signal.SIGINT, "worker.2", "run", "ralph", "--json", "--verify", GATE, GOAL) == 130
    assert (stage.about["status"], stage.statuses["1"]) == ("paused", "completed")
    resume = ("run", "ralph", "--json", "--resume", stage.session.name)

    stage.model.play({**whole, "worker.2": [[Stall()]]})
    assert await cut(stage, signal.SIGTERM, "worker.2", *resume) == 143
    assert stage.about["status"] == "paused"

    stage.model.play({**whole, "worker.2": tidy, "reviewer": [[Stall()]]})
    assert await cut(stage, signal.SIGKILL, "reviewer", *resume) == -signal.SIGKILL
    assert set(stage.statuses.values()) == {"completed"}
    listed = await stage.user.atomic("sessions", "list", "--json")
    assert [one["status"] for one in json.loads(listed.stdout)] == ["interrupted"]

    stage.model.play(whole)
    check_game(stage, await stage.resume())
    worked = ["worker 1 1", *["worker 2 1"] * 3]
    assert stage.model.begun == ["planner 1", *worked, "reviewer 1", "reviewer 1"]
    again = [call for call in stage.model.turns if cue_in(call.user_text) == ("worker", "2", "1")][1:]
    assert all("An earlier turn on this was interrupted" in call.user_text for call in again)


@pytest.mark.full
async def test_two_runs_at_once_and_a_question_in_one_of_them(stage: Stage) -> None:
    ask = [[stage.words.ask([COLOUR])], *stage.work({"a.txt": "a\n"})]
    stage.model.play({"worker.a": ask, "worker.b": stage.work({"b.txt": "b\n"}), "reviewer": json.dumps(APPROVAL)})
    for name in "ab":
        stage.leaves(f"{name}.json", {"tasks": [{"id": name, "title": f"Write {name}.txt"}]})
    begin = ("run", "ralph", "--json", "--verify", "true", "--tasks")
    async with stage.running(*begin, "a.json") as one, stage.running(*begin, "b.json") as other:
        asked = await one.until("question_asked", limit=120)
        codes = await one.over(limit=120), await other.over(limit=120)
    assert (codes, asked["question"]["text"]) == ((5, 0), "Which colour?")
    assert not any(event["type"] == "question_asked" for event in other.events)
    assert max(run.events[0]["time"] for run in (one, other)) < min(run.events[-1]["time"] for run in (one, other))
    outcome = await stage.atomic("answer", asked["run"], "--json", "2")
    assert outcome.status == DONE, outcome.end["message"]
    assert "Red" in stage.model.tool_results("worker")
    assert sorted(stage.subjects) == ["Write a.txt", "Write b.txt"]
    written = [json.loads((folder / "tasks.json").read_text())["tasks"] for folder in stage.sessions]
    assert sorted((task["id"], task["status"]) for tasks in written for task in tasks) == [
        ("a", "completed"),
        ("b", "completed"),
    ]


@pytest.mark.full
async def test_a_question_on_one_terminal_is_answered_from_another(stage: Stage) -> None:
    stage.leaves("todo.json", {"tasks": [{"id": "a", "title": "Write a.txt"}]})
    ask = [[stage.words.ask([COLOUR])], *stage.work({"a.txt": "a\n"})]
    stage.model.play({"worker": ask, "reviewer": json.dumps(APPROVAL)})
    words = (ATOMIC, "run", "ralph", "--verify", "true", "--tasks", "todo.json")
    async with in_terminal(words, env=stage.user.env, cwd=stage.project) as terminal:
        await terminal.shows("Which colour?", timeout=600)
        answered = await stage.user.atomic("answer", stage.session.name, "Red")
        assert answered.exit_code == 0, answered.stderr
        assert await terminal.exit_code(timeout=600) == 0
    assert "Red" in stage.model.tool_results("worker")
    assert stage.model.begun == ["worker a 1", "reviewer 1"]  # the turn with the question continued


# Several providers


PROGRAMS = {"claude-cli": "claude", "opencode": "opencode", "OpenAI": "copilot"}  # as they name themselves
ASKED = [
    ("planner", "copilot", "scripted-2"),
    ("worker", "opencode", "scripted-2"),
    ("worker", "opencode", "scripted-2"),
    ("reviewer", "claude", "scripted-9"),
    ("fixer", "copilot", "scripted-1"),
    ("reviewer", "claude", "scripted-9"),
]


def seen(call: ModelCall) -> tuple[str, str, str]:
    """Return the role, the program and the model of a call, as the server saw them."""
    return cue_in(call.user_text)[0], PROGRAMS[call.headers["user-agent"].partition("/")[0]], call.model


@pytest.mark.full
async def test_each_role_has_its_provider_and_model(tmp_path: Path) -> None:
    async with stage_for(tmp_path, "opencode", "claude", "copilot") as stage:
        finding = {
            "title": "The rules are secret",
            "body": "Write them down.",
            "priority": 1,
            "location": "README.md:1",
        }
        planner = AGENTS["copilot"].words
        reviewer = AGENTS["claude"].words
        scripts = {
            **parts(stage, with_tools=True),
            "planner": [[planner.custom("submit_plan", PLAN)], "Handed in."],
            "reviewer": json.dumps({"verdict": "request_changes", "findings": [finding], "summary": "Nearly."}),
            "fixer": stage.work({"RULES.md": "Take the last match.\n"}, words=planner),
        }
        stage.model.play(scripts)
        flags = ["planner=copilot", "worker=opencode", "reviewer=claude", "fixer=copilot"]
        models = ["planner=scripted-2", "worker=scripted/scripted-2", "reviewer=scripted-9", "fixer=scripted-1"]
        words = [word for pair in (*product(["--agent"], flags), *product(["--model"], models)) for word in pair]
        run = asyncio.create_task(stage.ralph(*words, "--verify", GATE, GOAL))
        await stage.model.wait_for(lambda call: call.script == "fixer", timeout=600)
        stage.model.play({**scripts, "reviewer": [[reviewer.custom("submit_review", APPROVAL)], "Done."]})
        assert (await run).status == DONE
        assert [seen(call) for call in stage.model.turns] == ASKED


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param('agent = "claude"\n[providers.copilot]\n', id="one is usual"),
        pytest.param("[providers.claude]\n[providers.copilot]\n", id="none is usual", marks=pytest.mark.full),
    ],
)
async def test_with_two_agents_the_reviewer_differs_from_the_worker(tmp_path: Path, settings: str) -> None:
    async with stage_for(tmp_path, "claude", "copilot") as stage:
        stage.user.sets(settings)
        stage.leaves("todo.json", PLAN)
        stage.model.play({**parts(stage, with_tools=True), "reviewer": json.dumps(APPROVAL)})
        check_game(stage, await stage.ralph("--verify", GATE, "--tasks", "todo.json"))
        assert [seen(call)[:2] for call in stage.model.turns] == [
            ("worker", "claude"),
            ("worker", "claude"),
            ("reviewer", "copilot"),
        ]
