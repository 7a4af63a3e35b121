"""Workflows started from a conversation. Each runs in its own process."""

from __future__ import annotations

import os
import signal
from time import monotonic
from typing import Any

import pytest

from atomic.chat.protocol import GraphDrawn, Leave, Left, QuestionClosed, RunEnded, RunStarted, Watch, WorkflowActivity
from atomic.runs.events import NodeStarted, Warning
from tests.chat.engine_client import EngineClient, engine
from tests.support.fake_acp import AGENT, use_fake_acp
from tests.support.timing import judge
from tests.support.user import User, processes
from tests.support.user_workflows import ledger, noted, session, sessions, started, workflow
from tests.support.waits import eventually

SLOW = """
async def first(state):
    note("first", state.prompt); return {"said": ["one"]}

async def slow(state):
    note("slow")
    while not os.path.exists("go"):
        await asyncio.sleep(0.05)
    note("over")
    return {"said": ["two"]}

workflow = graph(S).tool("first", first).tool("slow", slow).compile()
"""
DEAF = """
import time

def deaf(state):
    note("deaf", os.getpid()); time.sleep(300)

workflow = graph(S).tool("deaf", deaf).compile()
"""
ASKS = """
workflow = (graph(S).ask_user("which", "Which one?", options=["a", "b"])
    .tool("end", lambda state: note("done")).compile())
"""
FLAGS = """
default_config = {"depth": 1, "dry": False}
def create_state(params):
    note("config", params.config["depth"], params.config["dry"], repr(params.prompt)); return {"prompt": params.prompt}
workflow = graph(S).tool("one", lambda state: None).compile()
"""
UNLOGGED = """
from atomic.sessions.logs import SessionLogs

def first(state):
    SessionLogs.event = lambda self, line: None

workflow = graph(S).tool("first", first).tool("second", lambda state: note("second")).compile()
"""
CLOSES_ITS_OUTPUT = """
import fcntl, stat

def first(state):
    for name in os.listdir("/proc/self/fd"):
        try:
            writes = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
            if int(name) > 2 and writes and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                os.dup2(os.open(os.devnull, os.O_WRONLY), int(name))
        except OSError:
            pass

workflow = graph(S).tool("first", first).tool("second", lambda state: note("second")).compile()
"""
LOUD = """
async def loud(ctx):
    note("waits")
    while not os.path.exists("go"):
        await asyncio.sleep(0.05)
    for number in range(3000):
        ctx.emit("warning", {"text": f"{number} " + "x" * 1000})
        await asyncio.sleep(0)

workflow = graph(S).node("loud", loud).tool("over", lambda state: note("over")).compile()
"""


SECRET = "k3y-0123456789abcdef-0123456789"
LEAKS = """
async def leaks(ctx):
    ctx.emit("warning", {"text": "the key is " + os.environ["DEMO_API_KEY"]})

workflow = graph(S).node("leaks", leaks).compile()
"""
MAPS = """
workflow = (graph(S).map("files", lambda state: ["a", "b"], graph(S).tool("read", lambda item: note(item)))
    .tool("end", lambda state: None).compile())
"""


def has_started(node: str) -> Any:
    def fits(event: Any) -> bool:
        return isinstance(event, WorkflowActivity) and isinstance(event.event, NodeStarted) and event.event.node == node

    return fits


async def start_slow_workflow(client: EngineClient, user: User) -> str:
    """Start a run that waits in its second step and return its id."""
    workflow(user, "steps", SLOW)
    run = client.submit("/steps build it")
    await client.until(has_started("slow"))
    return run


async def test_a_workflow_is_followed_until_it_completes(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = await start_slow_workflow(client, user)
        begun = client.started(run)
        assert (begun.kind, begun.title, begun.prompt) == ("workflow", "steps", "/steps build it")
        assert begun.session == session(user)["id"]
        drawn = await client.until_type(GraphDrawn, run=run)
        row, column, cells = drawn.positions["slow"]
        assert drawn.lines[row][column : column + cells] == "slow"
        assert (await client.ask("/help")).status == "done"  # during the workflow
        (user.project / "go").touch()
        assert (await client.ended(run)).status == "completed"
        assert ledger(user) == ["first build it", "slow", "over"]
        client.check_ends()


async def test_every_step_of_a_map_has_its_node_in_the_drawing(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "maps", MAPS)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/maps")
        drawn = await client.until_type(GraphDrawn, run=run)
        assert (await client.ended(run)).status == "completed"
        nodes = client.screen_state().runs[run].nodes
        assert {"read", "end"} <= set(nodes)
        assert set(nodes) <= set(drawn.positions)


async def test_a_workflow_takes_the_same_flags_as_on_the_command_line(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "flags", FLAGS)
    async with engine(user, "--agent", AGENT) as client:
        ended = await client.ask('/flags --depth 3 --dry say "it"\nnow; `x` $HOME')
        assert ended.status == "completed", ended
        assert ledger(user) == ["config 3 True " + repr('say "it"\nnow; `x` $HOME')]
        for prompt in ("--depth 7", "-", "- tidy up"):
            assert (await client.ask(f"/flags --depth=2 -- {prompt}")).status == "completed"
            assert ledger(user).pop() == f"config 2 False {prompt!r}"
        long = "word " * 40_000
        assert (await client.ask(f"/flags {long}")).status == "completed"
        assert len(ledger(user)[-1]) > len(long)
        wrong = await client.ask("/flags --dpeth 3 x")
        assert (wrong.status, "--depth" in wrong.message) == ("failed", True)
        assert (await client.ask("/flags --help")).status == "done"
        assert "--depth" in client.notices()
        client.check_ends()


@pytest.mark.parametrize("flow", [UNLOGGED, CLOSES_ITS_OUTPUT], ids=["without a log", "without a pipe"])
async def test_events_arrive_without_the_log_and_without_the_pipe(user: User, flow: str) -> None:
    use_fake_acp(user)
    workflow(user, "steps", flow)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/steps now")
        assert (await client.ended(run)).status == "completed"
        events = [event.event for event in client.received if isinstance(event, WorkflowActivity)]
        nodes = [event.node for event in events if isinstance(event, NodeStarted)]
        assert nodes == ["first", "second"]
        assert ledger(user) == ["second"]


async def test_a_run_continues_while_no_one_reads_its_pipe(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "loud", LOUD)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/loud now")
        await client.until(has_started("loud"))
        client.process.send_signal(signal.SIGSTOP)
        try:
            (user.project / "go").touch()
            await noted(user, "over")
        finally:
            client.process.send_signal(signal.SIGCONT)
        assert (await client.ended(run)).status == "completed"
        events = [event.event for event in client.received if isinstance(event, WorkflowActivity)]
        numbers = [int(event.text.split()[0]) for event in events if isinstance(event, Warning)]
        assert numbers == list(range(3000))


async def test_secrets_in_events_of_a_run_are_not_shown(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "leaks", LEAKS)
    user.env["DEMO_API_KEY"] = SECRET
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/leaks now")
        assert (await client.ended(run)).status == "completed"
        events = [event.event for event in client.received if isinstance(event, WorkflowActivity)]
        warnings = [event.text for event in events if isinstance(event, Warning)]
        assert warnings == ["the key is [redacted]"]
        assert SECRET not in repr(events)


async def test_a_workflows_question_is_answered_here_or_on_the_command_line(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "asks", ASKS)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/asks now")
        asked = await client.question()
        assert (asked.run, asked.id, asked.who, asked.question.text) == (run, f"{run}:which", "which", "Which one?")
        client.answer(asked.id, "b")
        assert (await client.ended(run)).status == "completed"
        await client.until_type(QuestionClosed, id=asked.id)
        run = client.submit("/asks again")
        asked = await client.until_type(type(asked), run=run)
        other = next(folder.name for folder in sessions(user) if folder.name == client.started(run).session)
        done = await user.atomic("answer", other, "a")
        assert done.exit_code == 0
        assert (await client.ended(run)).status == "completed"
        assert (await client.until_type(QuestionClosed, id=asked.id)).answers is None
        client.check_ends()


@pytest.mark.ci
async def test_a_dismissed_question_pauses_the_run(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "asks", ASKS)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/asks now")
        asked = await client.question()
        client.answer(asked.id)
        ended = await client.ended(run)
        assert (ended.status, ended.resume) == ("paused", f"atomic resume {client.started(run).session}")
        again = client.submit(f"/resume {client.started(run).session}")
        asked = await client.until_type(type(asked), run=again)
        client.answer(asked.id, "a")
        assert (await client.ended(again)).status == "completed"
        assert ledger(user) == ["done"]


@pytest.mark.ci
async def test_an_interrupted_workflow_pauses_and_can_be_resumed(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = await start_slow_workflow(client, user)
        client.stop(run)
        ended = await client.ended(run)
        id = client.started(run).session
        assert (ended.status, ended.resume) == ("paused", f"atomic resume {id}")
        (user.project / "go").touch()
        again = client.submit(f"/resume {id}")
        assert (await client.ended(again)).status == "completed"
        assert client.started(again).kind == "workflow"
        assert ledger(user) == ["first build it", "slow", "slow", "over"]
        client.check_ends()


@pytest.mark.timed
async def test_a_forced_stop_ends_an_unresponsive_workflow(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "deaf", DEAF)
    async with engine(user, "--agent", AGENT) as client:
        run = client.submit("/deaf now")
        await eventually(lambda: ledger(user))
        client.stop(run)
        began = monotonic()
        client.stop(run, force=True)
        ended = await client.ended(run)
        judge(monotonic() - began, 1)
        assert (ended.status, ended.resume) == ("interrupted", f"atomic resume {client.started(run).session}")
        pid = int(ledger(user)[0].split()[1])
        await eventually(lambda: pid not in processes(user.home))


@pytest.mark.ci
async def test_a_run_survives_the_engine_and_can_be_watched_again(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = await start_slow_workflow(client, user)
        id = client.started(run).session
        os.kill(client.process.pid, signal.SIGKILL)
        await client.gone()
    assert session(user)["status"] == "running"
    async with engine(user, "--agent", AGENT) as client:
        client.send(Watch(session=id))
        begun = await client.until_type(RunStarted, session=id)
        await client.until(has_started("slow"))
        client.send(Watch(session=id))  # twice is once
        (user.project / "go").touch()
        ended = await client.ended(begun.run)
        assert ended.status == "completed"
        # A late second request may show the run again, but only after its end.
        before_end = client.received[: client.received.index(ended)]
        assert [event.session for event in before_end if isinstance(event, RunStarted)] == [id]
    assert ledger(user) == ["first build it", "slow", "over"]
    assert session(user)["status"] == "completed"


@pytest.mark.ci
async def test_a_killed_run_ends_with_the_command_that_resumes_it(user: User) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = await start_slow_workflow(client, user)
        os.kill(session(user)["owner"]["pid"], signal.SIGKILL)
        ended = await client.ended(run)
        assert (ended.status, ended.resume) == ("interrupted", f"atomic resume {client.started(run).session}")


@pytest.mark.ci
async def test_a_run_from_the_command_line_is_watched_and_stopped(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "steps", SLOW)
    async with started(user, "run", "--json", "steps", "build it") as running:
        await running.until("node_started", node="slow")
        async with engine(user, "--agent", AGENT) as client:
            client.submit(f"/sessions {session(user)['id'][:8]}")
            await client.until(has_started("slow"))
            client.stop("r1")
            assert (await client.ended("r1")).status == "paused"
            assert client.started("r1").kind == "workflow"
        assert await running.over() == 130


@pytest.mark.ci
@pytest.mark.parametrize("pause", [False, True])
async def test_leaving_prints_how_to_return_to_a_run(user: User, pause: bool) -> None:
    use_fake_acp(user)
    async with engine(user, "--agent", AGENT) as client:
        run = await start_slow_workflow(client, user)
        id = client.started(run).session
        if pause:
            client.submit("/exit")
        else:
            client.send(Leave())
        left = await client.until_type(Left, limit=10)
        await client.gone()
    verb = "resume" if pause else "attach"
    assert f"atomic {verb} {id}" in left.message
    assert session(user)["status"] == ("paused" if pause else "running")
    (ended,) = [event for event in client.received if isinstance(event, RunEnded) and event.run == run]
    assert (ended.status, ended.resume) == ("paused" if pause else "running", f"atomic {verb} {id}")
    (user.project / "go").touch()
    if not pause:
        await noted(user, "over")


async def test_an_untrusted_workflow_is_refused_with_the_command_that_trusts_it(user: User) -> None:
    use_fake_acp(user)
    folder = user.project / ".atomic" / "workflows"
    folder.mkdir(parents=True)
    (folder / "theirs.py").write_text('"""Theirs."""\nopen("ran", "w")\n')
    async with engine(user, "--agent", AGENT) as client:
        ended = await client.ask("/theirs now")
        assert (ended.status, "atomic trust" in ended.message) == ("failed", True)
        assert not (user.project / "ran").exists()
        assert sessions(user) == []


@pytest.mark.ci
async def test_a_workflow_without_a_graph_runs_as_a_turn(user: User) -> None:
    use_fake_acp(user)
    workflow(user, "plain", "")
    async with engine(user, "--agent", AGENT) as client:
        ended = await client.ask('/plain [{"say": "hello"}]')
        assert (ended.status, client.text("r1"), client.started("r1").kind) == ("done", "hello", "turn")
