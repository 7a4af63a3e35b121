"""`atomic run` with real Claude Code on a scripted model."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from atomic.testing import Call, Drip, ModelServer, claude_env
from tests.support.timing import judge
from tests.support.user import User, objects, processes
from tests.support.user_workflows import QUESTION, kinds, ledger, session, sessions, started, workflow
from tests.support.waits import eventually

pytestmark = pytest.mark.ci

SCRIPTS = {
    "make": [["First. ", Call("Bash", {"command": "echo made > made.txt"})], "It is made."],
    "slow": Drip("word\n", times=2_000, every=0.05),  # in lines, because text is printed by whole lines
    "one": "One. " * 50,
    "two": "Two.",
    "ask": [Call("AskUserQuestion", {"questions": [QUESTION]}), "Answered: {{tool_result}}"],
}  # fmt: skip
THREE = """
async def work(ctx):
    note("begin", ctx.node_id)
    await ctx.deps.turn("@@slow@@ " + ctx.node_id)

workflow = graph(S).parallel({name: node(name, work) for name in ("one", "two", "three")}).compile()
"""


@pytest.fixture(autouse=True)
async def server(user: User) -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPTS) as server:
        user.env |= claude_env(server, user.home) | {"PATH": user.env["PATH"]}
        yield server
        assert list(server.other) == []


async def test_a_workflow_lets_claude_work_and_tells_it(user: User) -> None:
    workflow(user, "make", "async def make(ctx):\n    return {'said': [await ctx.deps.turn(ctx.state.prompt)]}\n\n"
             "workflow = graph(S).node('make', make).compile()\n")  # fmt: skip
    done = await user.atomic("run", "make", "-a", "claude", "--json", "@@make@@")
    events: list[Any] = [*objects(done)]
    assert (done.exit_code, kinds(events)[-1]) == (0, "run_ended"), done.stderr
    inner = [event["event"]["type"] for event in events if event["type"] == "agent_activity"]
    assert inner.index("tool_started") < inner.index("tool_ended") < inner.index("turn_ended")
    assert (user.project / "made.txt").read_text() == "made\n"
    assert session(user)["cost"]["output_tokens"] > 0
    assert (sessions(user)[0] / "logs" / "agent-calls.jsonl").read_bytes().count(b"\n") == 1


NAMED = """
first = agent_node("first", "@@one@@ Remember 4711.", session="s")
full = context_monitor_node("full", session="s", threshold=0, action=ACTION)
last = agent_node("last", "@@two@@ Go on.", session="s")
"""


def calls_of(server: ModelServer, word: str) -> list[str]:
    """Return the messages that the model got in each call with that word in its last prompt."""
    return [str(call.body) for call in server.calls if f"@@{word}@@" in str(call.body)]


@pytest.mark.parametrize(("action", "restarts"), [("summarize", False), ("summarize", True), ("warn", True)])
async def test_a_named_session_goes_on_and_is_summarised(
    user: User, server: ModelServer, action: str, *, restarts: bool
) -> None:
    chain = ".then(first)" + (".ask_user('q', 'Go on?')" if restarts else "") + ".then(full).then(last)"
    workflow(user, "talk", f"{NAMED.replace('ACTION', repr(action))}workflow = graph(S){chain}.compile()\n")
    done = await user.atomic("run", "talk", "-a", "claude", "x")
    if restarts:
        assert done.exit_code == 5, done.stderr
        done = await user.atomic("answer", session(user)["id"], "yes")
    assert done.exit_code == 0, done.stderr
    (last,) = calls_of(server, "two")
    assert ("One. One." in last) == (action == "warn")  # what the agent said is there, or a summary of it
    log = (sessions(user)[0] / "logs" / "agent-calls.jsonl").read_bytes().splitlines()
    nodes = [msgspec.json.decode(line)["node"] for line in log]
    assert nodes == (["first", "full", "last"] if action == "summarize" else ["first", "last"])


async def test_what_claude_asks_is_answered_by_another_process(user: User) -> None:
    workflow(user, "talk", "")
    done = await user.atomic("run", "talk", "-a", "claude", "@@ask@@")
    assert (done.exit_code, session(user)["questions"][0]["text"]) == (5, "Which colour?"), done.stderr
    done = await user.atomic("answer", session(user)["id"], "2")
    assert done.exit_code == 0, done.stderr
    assert "Red" in done.stdout


@pytest.mark.timed
@pytest.mark.full
async def test_ctrl_c_ends_three_claudes_and_leaves_no_process(user: User) -> None:
    workflow(user, "three", THREE)
    async with started(user, "run", "three", "-a", "claude", "--json", "x") as run:
        talking: set[str] = set()
        while talking != {"one", "two", "three"}:
            activity = await run.until("agent_activity")
            assert activity["event"]["type"] != "turn_ended", activity
            talking.add(activity["node"])
        clock = asyncio.get_running_loop().time
        begun = clock()
        run.signal(signal.SIGINT)
        assert await run.over() == 130
        judge(clock() - begun, 10)
    await eventually(lambda: not processes(user.home))
    assert (run.events[-1]["status"], len(ledger(user))) == ("paused", 3)
