"""A workflow function with real agents on a scripted model: a pause, a kill and a resume."""

from __future__ import annotations

import os
import signal

import pytest

from atomic.testing import Drip, ModelServer
from tests.cli.test_slash_agents import environment
from tests.support.user import User
from tests.support.user_workflows import ledger, noted, session, started, workflow

pytestmark = pytest.mark.ci

SCRIPTS = {
    "draft": "Tea is warm.",
    "check": '{"good": true, "words": 3}',
    "slow": Drip("word\n", times=2_000, every=0.05),
    "last": "Tea is warm!",
}
WRITE = """
import msgspec

class Check(msgspec.Struct):
    good: bool
    words: int

@step
async def log(line: str) -> None:
    note(line)

@workflow
async def write(flow: Flow, topic: str) -> dict[str, object]:
    draft = await flow.agent("draft", f"@@draft@@ Write about {topic}.")
    checked = await flow.agent("check", "@@check@@ Is it good?", returns=Check)
    await log(f"{draft} {checked.words}")
    await flow.ask("Go on?")
    await log("asked")
    last = await flow.agent("last", "@@SLOW@@ Improve it.")
    return {"draft": draft, "good": checked.good, "last": last}
"""


@pytest.mark.parametrize("agent", ["claude", "opencode", "copilot"])
async def test_an_agent_works_for_a_function_that_is_answered_killed_and_resumed(user: User, agent: str) -> None:
    async with ModelServer(SCRIPTS) as server:
        user.env |= environment(agent)(server, user.home) | {"PATH": user.env["PATH"]}
        for program in ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
            user.env[program] = os.environ[program]
        workflow(user, "write", WRITE.replace("SLOW", "slow"))
        paused = await user.atomic("run", "write", "-a", agent, "tea")
        assert paused.exit_code == 5, paused.stderr
        id = session(user)["id"]
        async with started(user, "answer", id, "yes", "--json") as run:
            await noted(user, "asked")
            await run.until("agent_activity", node="last")
            run.signal(signal.SIGKILL)
            await run.over()
        workflow(user, "write", WRITE.replace("@@SLOW@@ Improve it.", "@@last@@ Improve it."))
        checked = await user.atomic("workflows", "check", "--runs")
        assert checked.exit_code == 0, checked.stdout  # the step that was killed has no record yet
        done = await user.atomic("resume", id, "-q")
        assert (done.exit_code, done.stdout) == (0, '{"draft":"Tea is warm.","good":true,"last":"Tea is warm!"}\n'), (
            done.stderr
        )
        assert ledger(user) == ["Tea is warm. 3", "asked"]
        assert session(user)["cost"]["output_tokens"] > 0
        assert list(server.other) == []
