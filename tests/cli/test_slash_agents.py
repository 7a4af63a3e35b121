"""Skills and agents from `atomic -p` with the real programs on a scripted model: what arrives there."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from atomic.testing import ModelCall, ModelServer, claude_env, copilot_env, opencode_env
from tests.support.entity_files import agent, skill
from tests.support.user import User
from tests.support.user_workflows import workflow

pytestmark = pytest.mark.ci

COPILOT_CACHE = Path(__file__).parents[2] / ".programs" / "cache" / "copilot"
SCRIPTS = {"tidy": "All tidy.", "plan": "A plan.", "check": "All well."}


def environment(name: str) -> Callable[[ModelServer, Path], dict[str, str]]:
    if name == "copilot":
        return lambda server, home: copilot_env(server, home, cache=COPILOT_CACHE)
    return claude_env if name == "claude" else opencode_env


@pytest.fixture(params=["claude", pytest.param("opencode", marks=pytest.mark.full), "copilot"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def server(user: User, name: str) -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPTS, models=("scripted-1", "scripted-sonnet-4")) as server:
        user.env |= environment(name)(server, user.home) | {"PATH": user.env["PATH"], "ATOMIC_AGENT": name}
        for program in ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
            user.env[program] = os.environ[program]
        yield server


def call_of(server: ModelServer, script: str) -> ModelCall:
    return next(call for call in server.calls if call.script == script)


async def test_a_skill_arrives_with_its_prompt_and_tools(user: User, server: ModelServer, name: str) -> None:
    skill(user.project / ".claude", "tidy", "Tidy $ARGUMENTS and say so. @@tidy@@", head="allowed-tools: Bash, Read\n")
    done = await user.atomic("-p", "/tidy the tests")
    assert (done.exit_code, done.stdout) == (0, "All tidy.\n"), done.stderr
    call = call_of(server, "tidy")
    assert "Tidy the tests and say so." in call.user_text
    tools = {tool.casefold() for tool in call.tools}
    assert "bash" in tools
    assert not tools & {"write", "edit", "create", "apply_patch"}


async def test_several_agents_arrive_with_their_system_prompts(user: User, server: ModelServer, name: str) -> None:
    agent(user.project / ".atomic", "plan-it", "You plan things like nobody else.", head="model: sonnet\n")
    agent(user.project / ".atomic", "check-it", "You check things like nobody else.")
    done = await user.atomic("-p", "@plan-it go @@plan@@ @check-it see @@check@@")
    assert done.stdout == "## @plan-it\n\nA plan.\n\n## @check-it\n\nAll well.\n", done.stderr
    plan = call_of(server, "plan")
    check = call_of(server, "check")
    assert "You plan things like nobody else." in plan.system
    assert "You check things like nobody else." in check.system
    assert "sonnet" in plan.model or name == "copilot"  # whose list without a login is the one configured model
    assert "sonnet" not in check.model or name == "claude"


@pytest.mark.full
async def test_an_agent_of_a_workflow_has_the_model_that_its_file_spells(user: User) -> None:
    agent(user.project / ".opencode", "theirs", "You know this model.", head="model: scripted/other-2\n")
    agent(user.project / ".atomic", "ours", "You do, too.", head="model: other-2\n")
    body = """
async def both(ctx):
    await ctx.deps.turn("@@a@@", agent="theirs")
    await ctx.deps.bridge.spawn(SubagentRequest("ours", "@@b@@"))
    await ctx.deps.turn("@@c@@", agent="worker")

workflow = graph(S).node("both", both).compile()
"""
    workflow(user, "models", body)
    scripts = dict.fromkeys("abc", "Well.")
    async with ModelServer(scripts, models=("scripted-1", "other-2", "scripted-sonnet-4")) as server:
        user.env |= opencode_env(server, user.home) | {"PATH": user.env["PATH"]}
        user.env["ATOMIC_OPENCODE_PATH"] = os.environ["ATOMIC_OPENCODE_PATH"]
        done = await user.atomic("run", "models", "-a", "opencode")
    assert done.exit_code == 0, done.stderr
    # The built-in worker names "sonnet", but must not make users pay for a model that they did not choose.
    models = [call_of(server, name).model for name in "abc"]
    assert models == ["other-2", "other-2", "scripted-1"]
