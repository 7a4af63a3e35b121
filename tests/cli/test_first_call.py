"""How soon `atomic run` comes to its first call of an agent, with the real programs on a scripted model."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator

import pytest

from atomic.testing import ModelServer
from atomic.testing.conformance import AGENTS
from tests.cli.test_slash_agents import environment
from tests.support.fake_acp import use_fake_acp
from tests.support.timing import JUDGED, judge
from tests.support.user import User
from tests.support.user_workflows import ledger, workflow
from tests.testing.test_real_agents import claude_program

CPU_LIMIT = 0.5  # seconds
HEAVY = {"acp", "claude_agent_sdk", "copilot", "mcp", "pydantic", "starlette"}
LOOK = """
import sys, time
from atomic.providers import tool

def add(a: int, b: int) -> int:
    "Add."
    return a + b

async def look(ctx):
    note(await ctx.deps.turn(ctx.state.prompt, custom_tools=[tool(add)]))
    note(*{name.partition(".")[0] for name in sys.modules})
    note(time.process_time())  # of Atomic alone, without its children

workflow = graph(S).node("look", look).compile()
"""


@pytest.fixture(params=["claude", "copilot", pytest.param("opencode", marks=pytest.mark.full)])
async def agent(user: User, request: pytest.FixtureRequest) -> AsyncGenerator[str]:
    name: str = request.param
    call = AGENTS[name].words.custom("add", {"a": 40, "b": 2})
    async with ModelServer({"add": [[call], "It is {{tool_result}}."]}) as server:
        user.env |= environment(name)(server, user.home) | {"PATH": user.env["PATH"]}
        for program in ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
            user.env[program] = os.environ[program]
        yield name


@pytest.mark.timed
@pytest.mark.ci
async def test_half_a_second_of_work_is_enough_and_no_sdk_is_imported(user: User, agent: str) -> None:
    workflow(user, "look", LOOK)
    for _ in range(3 if JUDGED else 1):  # the machine may be busy: the best counts
        done = await user.atomic("run", "look", "-a", agent, "@@add@@")
        assert done.exit_code == 0, done.stderr
    said, modules, _ = ledger(user)[:3]
    assert said == "It is 42."
    assert "msgspec" in modules.split()
    assert not HEAVY & set(modules.split())
    judge(min(map(float, ledger(user)[2::3])), CPU_LIMIT)  # of the whole turn, not only of its beginning


@pytest.mark.parametrize("name", ["claude", "copilot"])
async def test_a_program_of_your_own_needs_no_extra(user: User, name: str) -> None:
    """Set up a user after `pip install atomic-workflows`, with the agent on the PATH."""
    async with ModelServer({"hello": ["Hello."]}) as server:
        user.env |= environment(name)(server, user.home)
        user.has_no_agents()
        (user.bin / name).symlink_to(claude_program() if name == "claude" else os.environ["ATOMIC_COPILOT_PATH"])
        done = await user.atomic("-p", "--agent", name, "@@hello@@")
    assert (done.exit_code, done.stdout) == (0, "Hello.\n"), done.stderr


async def test_an_agent_of_the_protocol_needs_no_extra(user: User) -> None:
    """As after `pip install atomic-workflows` alone."""
    user.has_no_agents()
    use_fake_acp(user)
    done = await user.atomic("-p", "--agent", "acp:puppet", '[{"say": "Hello."}]')
    assert (done.exit_code, done.stdout) == (0, "Hello.\n"), done.stderr
