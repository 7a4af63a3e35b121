"""Runs are stopped at random moments: each ends once, and the engine keeps working."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.chat.engine_client import EngineClient, engine
from tests.support.fake_acp import AGENT, form, steps, use_fake_acp
from tests.support.user import User, processes
from tests.support.user_workflows import workflow
from tests.support.waits import eventually

pytestmark = pytest.mark.ci

PROMPTS = (
    steps({"say": "x"}, {"wait": True}),
    steps({"say": "x"}, {"deaf": True}),
    steps({"say": "x"}, {"pause": 0.3}, {"say": "y"}),
    steps({"ask": form("Which?", "a", "b")}),
    steps({"exit": 1}),
    f"@planner {steps({'say': 'x'}, {'pause': 0.2})}",
    "/steps go",
    "/help",
    "/model list",
    "/clear",
    "/compact",
    "/sessions",
    "/mcp",
)
STEPS = """
async def slow(state):
    await asyncio.sleep(0.3)

workflow = graph(S).tool("slow", slow).ask_user("q", "Well?", options=["a", "b"]).compile()
"""


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
async def test_runs_stopped_at_random_moments_end_once_and_leave_no_process(user: User, seed: int) -> None:
    use_fake_acp(user)
    workflow(user, "steps", STEPS)
    random = Random(seed)
    async with engine(user, "--agent", AGENT) as client:
        runs = [await _start_and_stop(client, random) for _ in range(50)]
        for run in runs:
            await client.ended(run)
        client.check_ends()
        run = client.submit(steps({"say": "still here"}))
        await client.ended(run)
        assert client.text(run) == "still here"
    await eventually(lambda: not processes(user.home))


async def _start_and_stop(client: EngineClient, random: Random) -> str:
    run = client.shell("sleep 60") if random.random() < 0.1 else client.submit(random.choice(PROMPTS))
    await asyncio.sleep(random.choice((0, 0.01, 0.05, 0.2, 0.8)))
    client.stop(run)
    if random.random() < 0.5:
        await asyncio.sleep(random.choice((0, 0.01, 0.3)))
        client.stop(run, force=True)
        await client.ended(run)
    elif random.random() < 0.7:
        await client.ended(run)
    return run


async def test_a_run_stopped_before_it_starts_ends(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "steps", STEPS)
    async with engine(user, "--agent", AGENT) as client:
        for prompt in (*PROMPTS[:4], "/steps go", "/help"):
            run = client.submit(prompt)
            client.stop(run)
            assert (await client.ended(run)).status in ("interrupted", "done", "paused")
        client.check_ends()
    assert not processes(user.home)
