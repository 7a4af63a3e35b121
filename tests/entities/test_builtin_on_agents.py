"""Test that the built-in skills and agents reach real agents with prompt, tools and model."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.entities import Entity, EntityRegistry
from atomic.providers import AgentProvider, EndReason, SessionOptions, TurnEnded, require_provider
from atomic.providers.tool_names import spelled
from atomic.tasks import TaskList
from atomic.testing.conformance import AGENTS
from atomic.testing.conformance.agents import CLAUDE_WORDS
from atomic.testing.conformance.case import environment
from atomic.testing.model_server import Call, ModelCall, ModelServer, Script
from atomic.workflows import Bridge, SubagentRequest
from tests.entities.test_builtin import AGENTS as AGENT_NAMES
from tests.entities.test_builtin import SKILLS as SKILL_NAMES
from tests.providers.conformance.suite import CACHE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.ci]

AT_ONCE = 3  # programs; starting them is slow
# Claude Code has a model "opus". Other agents use a model of the family, or the user's own.
MODELS = {
    "claude": {"opus": "opus", "sonnet": "sonnet", "haiku": "haiku"},
    "opencode": {"opus": "scripted-1", "sonnet": "scripted-1", "haiku": "scripted-haiku-4"},
    "copilot": {"opus": "scripted-1", "sonnet": "scripted-1", "haiku": "scripted-1"},
}
# Tools that every agent offers from the start; it may add others when the model searches.
OFFERED = ("bash", "read", "write", "edit", "glob", "grep")
ALL = (*OFFERED, "webfetch", "websearch", "task", "todo", "skill")


class Runs:
    """The requests to the model when each skill and each agent ran once."""

    def __init__(self, name: str, entities: EntityRegistry, server: ModelServer, folder: Path) -> None:
        self.provider: AgentProvider = require_provider(name)
        self.entities = entities
        self._server = server
        self._folder = folder

    async def all(self) -> None:
        slots = asyncio.Semaphore(AT_ONCE)
        bridge = Bridge(self.provider, entities=self.entities, cwd=self._folder)
        async with self.provider.open(SessionOptions(cwd=self._folder)), asyncio.TaskGroup() as group:
            for name in sorted(AGENT_NAMES):
                group.create_task(self._agent(bridge, name, slots))
            for name in sorted(SKILL_NAMES):
                group.create_task(self._skill(self.entities.require("skill", name), slots))

    async def _agent(self, bridge: Bridge, name: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            result = await bridge.spawn(SubagentRequest(name, f"@@agent.{name}@@ Begin."))
        assert result.success, f"{name}: {result.error}"

    async def _skill(self, skill: Entity, slots: asyncio.Semaphore) -> None:
        async with slots:
            end = await one_turn(self.provider, skill, f"@@skill.{skill.name}@@ the parser", self._folder)
        assert end.reason is EndReason.DONE, f"{skill.name}: {end.error}"

    def call(self, kind: str, name: str) -> ModelCall:
        """Return the first call of the model in that run."""
        return next(call for call in self._server.calls if call.script == f"{kind}.{name}")


async def one_turn(
    provider: AgentProvider, skill: Entity, arguments: str, folder: Path, agents: Sequence[Entity] = ()
) -> TurnEnded:
    """Run a skill as a turn of a new conversation, with agents that it may start."""
    options = SessionOptions(cwd=folder, tools=skill.tools, denied_tools=skill.denied_tools, agents=agents)
    async with asyncio.timeout(120), provider.open(options) as session:
        events = [event async for event in session.send(skill.expand(arguments))]
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def scripts() -> dict[str, Script]:
    named = [*(f"agent.{name}" for name in AGENT_NAMES), *(f"skill.{name}" for name in SKILL_NAMES)]
    return {name: f"Done as {name}." for name in named}


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        "claude",
        pytest.param("opencode", marks=pytest.mark.full),
        pytest.param("copilot", marks=pytest.mark.full),
    ],
)
async def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Runs]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    home = folder / "home"
    work = folder / "work"
    for each in (home, work):
        each.mkdir()
    async with ModelServer(scripts(), toolless=tuple(scripts()), models=("scripted-1", "scripted-haiku-4")) as server:
        with environment(AGENTS[name].environment(server, home, CACHE), home):
            runs = Runs(name, EntityRegistry.load(project=work, user=home), server, work)
            await runs.all()
            yield runs
    assert not server.other, f"the agent sent other requests than model calls: {server.other}"


@pytest.mark.parametrize("name", sorted(AGENT_NAMES))
async def test_an_agent_arrives_with_its_prompt_tools_and_model(runs: Runs, name: str) -> None:
    call = runs.call("agent", name)
    agent = runs.entities.require("agent", name)
    assert normalize_spaces(agent.prompt) in normalize_spaces(call.system)
    check_tools(call, agent, runs.provider.name)
    wanted = MODELS[runs.provider.name][agent.model or ""]
    assert wanted in call.model, f"{agent.model} became {call.model}"


@pytest.mark.parametrize("name", sorted(SKILL_NAMES))
async def test_a_skill_arrives_as_the_prompt_with_its_arguments_and_tools(runs: Runs, name: str) -> None:
    call = runs.call("skill", name)
    skill = runs.entities.require("skill", name)
    assert normalize_spaces(skill.expand(f"@@skill.{name}@@ the parser")) in normalize_spaces(call.user_text)
    assert "$ARGUMENTS" not in call.user_text
    check_tools(call, skill, runs.provider.name)


def check_tools(call: ModelCall, entity: Entity, provider: str) -> None:
    """Check that the named tools are offered and other common tools are not."""
    named = ALL if entity.tools is None else entity.tools
    wanted = {tool for name in OFFERED if name in named for tool in spelled([name], provider)[:1]}
    if entity.tools is None and provider == "claude":
        wanted -= {"Glob", "Grep"}  # Claude Code omits them if it has a shell
    assert wanted <= set(call.tools)
    forbidden = {tool for name in ALL if name not in named for tool in spelled([name], provider)}
    assert not forbidden & set(call.tools)


def normalize_spaces(text: str) -> str:
    return " ".join(text.split())


# The chain of skills, on Claude Code

RESEARCH = """---
date: 2026-03-02
topic: greeting
question: how does greeting work
commit: none
---

# Greeting

## Answer
`greet.py` prints one word. LEFT-BY-RESEARCH
"""
SPEC = """---
date: 2026-03-02
topic: greeting
research: research/docs/2026-03-02-greeting.md
---

# Greet by name

## Requirements
- **R1** `greet.py NAME` prints `Hello NAME`. Check: run it. LEFT-BY-SPEC
"""
TASKS = {
    "version": "1.0",
    "tasks": [
        {
            "id": "1",
            "title": "Greet by name",
            "description": "greet.py takes a name.",
            "status": "pending",
            "priority": 1,
            "blocked_by": [],
            "acceptance": ["`python3 greet.py Ada` prints Hello Ada"],
            "metadata": {"requirements": ["R1"]},
        },
        {"id": "2", "title": "Describe it", "status": "pending", "priority": 2, "blocked_by": ["1"]},
    ],
    "metadata": {"spec": "specs/2026-03-02-greeting.md"},
}


def read(path: Path) -> Call:
    return Call("Read", {"file_path": str(path)})


def find(pattern: str) -> Call:
    return Call("Glob", {"pattern": pattern})


def chain_scripts(folder: Path) -> Mapping[str, Script]:
    """Return scripts that follow each skill: read the previous file, write its own."""
    research = folder / "research/docs/2026-03-02-greeting.md"
    spec = folder / "specs/2026-03-02-greeting.md"
    tasks = folder / "research/tasks.json"
    return {
        "chain1": [
            [CLAUDE_WORDS.subagent("codebase-locator", "@@locate@@ Where is the greeting?")],
            [read(folder / "greet.py")], [CLAUDE_WORDS.write(research, RESEARCH)], "Written.",
        ],
        "locate": "## Answer\n`greet.py` FOUND-BY-LOCATOR",
        "chain2": [
            [find("research/docs/*.md")], [read(research)], [CLAUDE_WORDS.write(spec, SPEC)], "Written.",
        ],
        "chain3": [
            [find("specs/*.md")], [read(spec)], [CLAUDE_WORDS.write(tasks, json.dumps(TASKS))],
            [CLAUDE_WORDS.bash("python3 -m json.tool research/tasks.json > /dev/null && echo is-json")], "Written.",
        ],
    }  # fmt: skip


def repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "greet.py").write_text("print('Hello')\n")
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Greet"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


async def test_research_specification_and_tasks_work_as_a_chain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    work = repository(tmp_path / "work")
    home.mkdir()
    async with ModelServer(chain_scripts(work)) as server:
        with environment(AGENTS["claude"].environment(server, home, CACHE), home):
            entities = EntityRegistry.load(project=work, user=home)
            provider = require_provider("claude")
            for number, name in enumerate(["research-codebase", "create-spec", "create-feature-list"], 1):
                skill = entities.require("skill", name)
                arguments = f"@@chain{number}@@ greeting"
                end = await one_turn(provider, skill, arguments, work, agents=entities.all("agent"))
                assert end.reason is EndReason.DONE, f"{name}: {end.error}"
    [located] = [call for call in server.calls if call.script == "locate"]
    assert normalize_spaces(entities.require("agent", "codebase-locator").prompt) in normalize_spaces(located.system)
    assert "haiku" in located.model
    assert {"Read", "Grep", "Glob"} <= set(located.tools)
    assert not {"Bash", "Write", "Edit"} & set(located.tools)
    results = results_of(server.calls)
    assert "FOUND-BY-LOCATOR" in results["chain1"][0]
    assert "research/docs/2026-03-02-greeting.md" in results["chain2"][0]
    assert "LEFT-BY-RESEARCH" in results["chain2"][1]
    assert "specs/2026-03-02-greeting.md" in results["chain3"][0]
    assert "LEFT-BY-SPEC" in results["chain3"][1]
    assert "is-json" in results["chain3"][3]
    tasks = TaskList.read(work / "research/tasks.json")
    assert not tasks.problems
    assert [task.title for task in tasks.ready()] == ["Greet by name"]
    changed = subprocess.run(
        ["git", "status", "--short", "-uall"], cwd=work, check=True, capture_output=True, text=True
    )
    assert changed.stdout.split() == [
        "??", "research/docs/2026-03-02-greeting.md", "??", "research/tasks.json", "??", "specs/2026-03-02-greeting.md",
    ]  # fmt: skip


def results_of(calls: Sequence[ModelCall]) -> dict[str, list[str]]:
    """Return the results of the tools for each script, call by call."""
    results: dict[str, list[str]] = {}
    for call in calls:
        if call.script is not None and call.turn > 0:
            results.setdefault(call.script, []).append(call.tool_result)
    return results
