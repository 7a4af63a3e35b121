"""`agents(…)`: a Python program runs workflows and turns with agents, without the command."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from atomic.graph.engine.run_deps import is_in_step
from atomic.providers import EndReason, LimitReached, Question, SessionOptions, Usage
from atomic.providers.base import Capabilities
from atomic.providers.turn import Turn
from atomic.tasks import TaskList
from atomic.workflows import (
    AgentsPausedError,
    AtomicError,
    Bridge,
    CompiledGraph,
    Flow,
    MemoryJournal,
    Node,
    NodeContext,
    RunResult,
    RunStatus,
    SqliteJournal,
    State,
    SubagentRequest,
    Task,
    WorkflowRuntime,
    agents,
    custom_tool_node,
    graph,
    node,
    parallel_subagent_node,
    subgraph_node,
    task_loop_node,
    workflow,
)
from tests.providers.scripted import ScriptedProvider, ScriptedSession
from tests.runs.small_runtime import Entities, Entity

CAN = Capabilities(usage=True, cost=True, resume=True, system_prompt=True, tool_selection=True, questions=True)
Context = NodeContext[State, WorkflowRuntime]
Play = Callable[[ScriptedSession, Turn], Awaitable[None]]


async def echo(session: ScriptedSession, turn: Turn) -> None:
    """Answer with the prompt, for half a dollar."""
    turn.end(EndReason.DONE, text=f"did {session.prompts[-1]}", usage=Usage(input=3, output=1, cost=0.5))


async def fails(session: ScriptedSession, turn: Turn) -> None:
    turn.end(EndReason.ERROR, error="the model is ill")


def provider(play: Play = echo) -> ScriptedProvider:
    return ScriptedProvider(play, capabilities=CAN)


def turns(*prompts: str) -> CompiledGraph[State]:
    """Return a graph with one turn for each prompt."""
    made = graph(State)
    for number, prompt in enumerate(prompts, 1):
        made = made.agent(f"turn{number}", prompt)
    return made.compile(name="turns")


def of_one(run: Callable[[Context], Awaitable[Any]]) -> CompiledGraph[State]:
    """Return a graph with one node, whose result is its output."""

    async def output(ctx: Context) -> dict[str, Any]:
        return {"outputs": {"one": await run(ctx)}}

    return graph(State).then(node("one", output)).compile(name="one")


def output_of(result: RunResult[State]) -> Any:
    assert result.error is None, result.error
    return result.state.outputs["one"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home folder and a project of its own."""
    project = tmp_path / "project"
    for folder in (tmp_path / "home", tmp_path / "temporary", project):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(project)
    return project


# -- runs ---------------------------------------------------------------------------------


async def test_a_run_uses_the_agents_of_its_deps() -> None:
    async with agents(provider()) as runtime:
        result = await turns("one", "two").run(deps=runtime)
    assert result.error is None
    assert result.state.outputs == {"turn1": "did one", "turn2": "did two"}


async def test_agent_is_short_for_agents_that_end_with_the_run() -> None:
    agent = provider()
    result = await turns("one").run(agent=agent)
    assert result.state.outputs == {"turn1": "did one"}
    steps = [step async for step in turns("two").stream(agent=agent)]
    assert [step.state.outputs for step in steps] == [{"turn1": "did two"}]
    assert agent.closed == 2


async def test_a_resume_takes_an_agent_too() -> None:
    journal = MemoryJournal()
    graph = turns("one", "two")
    first = await graph.run(agent={"turn1": provider(), "": provider(fails)}, journal=journal, execution_id="mine")
    assert first.status is RunStatus.FAILED
    second = await graph.resume(journal, "mine", agent=provider())
    assert second.state.outputs == {"turn1": "did one", "turn2": "did two"}
    again = [step async for step in graph.resume_stream(journal, "mine", agent=provider())]
    assert again == []


async def test_a_run_that_only_sleeps_parks_or_waits_for_a_signal() -> None:
    async def rest(ctx: Context) -> None:
        await ctx.sleep(hours=1)

    async def wait(ctx: Context) -> dict[str, Any]:
        return {"wait": await ctx.wait_for("go")}

    async with agents(provider(), park=True) as runtime:
        parked = await of_one(rest).run(deps=runtime, journal=MemoryJournal())
        assert (parked.status, parked.codes) == (RunStatus.PAUSED, ("sleeping",))
        assert parked.wake_at is not None
    journal = MemoryJournal()
    async with agents(provider()) as runtime:
        paused = await of_one(wait).run(deps=runtime, journal=journal, execution_id="mine")
        assert (paused.status, paused.signals) == (RunStatus.PAUSED, ("go",))
        journal.signal("mine", "go", 7)
        assert output_of(await of_one(wait).resume(journal, "mine", deps=runtime)) == {"wait": 7}


async def test_a_stream_that_is_left_early_ends_its_agents() -> None:
    agent = provider()
    stream = turns("one", "two").stream(agent=agent)
    async for step in stream:
        assert step.node_id == "turn1"
        break
    await stream.aclose()  # type: ignore[attr-defined]
    assert os.listdir(tempfile.gettempdir()) == []


async def test_each_role_has_its_agent_and_model() -> None:
    async def who(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.DONE, text=f"{session.provider} {session.options.model}", usage=Usage(cost=0.0))

    one = provider(who)
    other = provider(who)
    other.name = "other"
    entities = Entities()
    entities.add("agent", Entity("reviewer", prompt="You review."))
    flow = graph(State).agent("write", "Write.").subagent("review", agent="reviewer", task="Review.").compile()
    choice = {"": one, "reviewer": other}
    async with agents(choice, model={"reviewer": "big"}, entities=entities) as runtime:
        result = await flow.run(deps=runtime)
        assert result.state.outputs == {"write": "scripted None", "review": "other big"}
        assert (await flow.run(deps=runtime, model="run")).state.outputs["write"] == "scripted run"


async def test_two_providers_of_one_name_are_two_agents() -> None:
    async with agents({"turn1": provider(), "": provider(fails)}) as runtime:
        result = await turns("one", "two").run(deps=runtime)
    assert result.state.outputs == {"turn1": "did one"}
    assert "turn2: the model is ill" in str(result.error)


async def test_sub_agents_skills_and_commands_come_from_the_folder_of_the_project(project: Path) -> None:
    for file, text in {
        "agents/coder.md": "---\nname: coder\ndescription: Writes code.\n---\nYou write code.",
        "commands/tidy.md": "Tidy $ARGUMENTS.",
        "skills/plan/SKILL.md": "---\nname: plan\ndescription: Plans.\n---\nPlan $ARGUMENTS.",
    }.items():
        (project / ".claude" / file).parent.mkdir(parents=True, exist_ok=True)
        (project / ".claude" / file).write_text(text)

    async def prompts(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.DONE, text=f"{session.options.system_prompt}|{session.prompts[-1]}", usage=Usage(cost=0.0))

    flow = (
        graph(State)
        .subagent("code", agent="coder", task="Add a page.")
        .then(
            parallel_subagent_node("both", agents=[SubagentRequest("coder", "One."), SubagentRequest("coder", "Two.")])
        )
        .command("tidy", args="the shed")
        .skill("plan", args="the day")
        .compile()
    )
    async with agents(provider(prompts), project=project, cwd=project.parent) as runtime:
        result = await flow.run(deps=runtime)
    assert result.error is None
    outputs = result.state.outputs
    assert outputs["code"] == "You write code.|Add a page."
    assert [one["text"] for one in outputs["both"]] == ["You write code.|One.", "You write code.|Two."]
    assert outputs["command-tidy"].strip() == "None|Tidy the shed."
    assert "Plan the day." in outputs["skill-plan"]


CODE = {
    ".atomic/tools/sums.py": 'def add(a: int, b: int) -> int:\n    """Add."""\n    return a + b\n',
    ".atomic/workflows/inner.py": (
        "from atomic.workflows import State, graph, tool_node\n"
        "workflow = graph(State).then(tool_node('hi', lambda: 'hi')).compile(name='inner')\n"
    ),
}


async def test_tools_and_workflows_of_the_project_run_only_if_it_is_trusted(project: Path) -> None:
    for name, text in CODE.items():
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text(text)
    add: Node[State, WorkflowRuntime] = custom_tool_node("add", tool="add", args={"a": 1, "b": 2})
    flow = graph(State).then(add).then(subgraph_node("call", "inner")).compile()
    refused = await flow.run(agent=provider())
    assert "not trusted" in str(refused.error)
    async with agents(provider(), trusted=True) as runtime:
        assert runtime.trusted
        result = await flow.run(deps=runtime)
    assert result.error is None
    assert result.state.outputs["add"] == 3


async def test_a_step_has_tasks_facts_and_files_which_end_with_the_run(tmp_path: Path) -> None:
    seen: list[Path] = []

    async def work(ctx: Context) -> list[str]:
        ctx.deps.tasks.write(TaskList([Task(id="1", title="Begin")]))
        ctx.deps.facts.set("seen", 1)
        ctx.deps.files.write("notes.md", "Hello.")
        seen.append(ctx.deps.files.dir)
        assert (ctx.deps.files.dir / "notes.md").read_text() == "Hello."
        return [task.title for task in ctx.deps.tasks.read().tasks]

    async with agents(provider()) as runtime:
        assert output_of(await of_one(work).run(deps=runtime)) == ["Begin"]
        assert not seen[0].exists()
    assert os.listdir(tempfile.gettempdir()) == []


async def test_agents_work_on_the_tasks_of_a_file(project: Path) -> None:
    TaskList([Task(id="1", title="Login"), Task(id="2", title="Search")]).write(project / "tasks.json")

    async def work(ctx: Context) -> dict[str, Any]:
        return {"outputs": {ctx.item.title: await ctx.deps.turn(f"Build {ctx.item.title}")}}

    loop = task_loop_node("build", tasks_path="tasks.json", task_nodes=[node("work", work)])
    result = await graph(State).then(loop).compile().run(agent=provider())
    assert result.error is None
    assert result.state.outputs == {"Login": "did Build Login", "Search": "did Build Search"}
    assert [str(task.status) for task in TaskList.read(project / "tasks.json").tasks] == ["completed", "completed"]


async def test_tasks_and_facts_are_in_the_journal_for_a_resume(tmp_path: Path) -> None:
    fails_once = [True]

    async def work(ctx: Context) -> Any:
        if fails_once.pop() if fails_once else False:
            ctx.deps.tasks.write(TaskList([Task(id="1", title="Begin")]))
            ctx.deps.facts.set("seen", [1])
            raise AtomicError("not yet")
        return [ctx.deps.facts["seen"], [task.title for task in ctx.deps.tasks.read().tasks]]

    path = tmp_path / "runs.db"
    flow = of_one(work)
    assert (await flow.run(agent=provider(), journal=path, execution_id="mine")).status is RunStatus.FAILED
    assert output_of(await flow.resume(path, "mine", agent=provider())) == [[1], ["Begin"]]


async def test_facts_are_no_runs_and_are_deleted_with_their_run(tmp_path: Path) -> None:
    for journal in (SqliteJournal(tmp_path / "runs.db"), MemoryJournal()):
        with journal:
            await turns("one").run(agent=provider(), journal=journal, execution_id="mine")
            assert [run.execution_id for run in journal.list()] == ["mine"]
            assert journal.history("mine/facts").rows
            journal.delete("mine")
            with pytest.raises(AtomicError, match="Run not found"):
                journal.history("mine/facts")
            await turns("one").run(agent=provider(), journal=journal, execution_id="mine")
            with pytest.raises(AtomicError, match=r'Run not found: "mine/fact" \(did you mean "mine"\?\)$'):
                journal.history("mine/fact")


async def test_facts_and_files_have_no_secrets(tmp_path: Path) -> None:
    secret = "correct-horse-battery-staple"

    async def work(ctx: Context) -> Any:
        ctx.deps.facts.set("seen", f"key {secret}")
        ctx.deps.files.write("notes.md", f"key {secret}")
        return [ctx.deps.facts["seen"], (ctx.deps.files.dir / "notes.md").read_text()]

    async with agents(provider(), env={"SERVICE_PASSWORD": secret}) as runtime:
        seen, written = output_of(await of_one(work).run(deps=runtime, journal=tmp_path / "runs.db"))
    assert seen.startswith("key ")
    assert secret not in seen + written
    assert secret.encode() not in (tmp_path / "runs.db").read_bytes()


async def test_a_named_session_is_shared_and_continued_by_a_resume(tmp_path: Path) -> None:
    opened: list[str | None] = []

    async def note(session: ScriptedSession, turn: Turn) -> None:
        opened.append(session.options.resume)
        if "three" in session.prompts[-1] and len(opened) == 3:
            turn.end(EndReason.ERROR, error="ill")
        turn.end(EndReason.DONE, text=str(len(session.prompts)), usage=Usage(cost=0.0))

    flow = graph(State)
    for name in ("one", "two", "three"):
        flow = flow.agent(name, name, session="shared")
    talk = flow.compile()
    agent = provider(note)
    async with agents(agent) as runtime:
        first = await talk.run(deps=runtime, journal=tmp_path / "runs.db", execution_id="mine")
        assert first.state.outputs == {"one": "1", "two": "2"}
        assert agent.closed == 1  # it ends with its run
    second = await talk.resume(tmp_path / "runs.db", "mine", agent=agent)
    assert second.state.outputs["three"] == "1"
    assert opened == [None, None, None, "scripted-1"]


async def test_an_agents_question_pauses_the_run_until_it_is_answered() -> None:
    async def asks(session: ScriptedSession, turn: Turn) -> None:
        if "answered" in session.prompts[-1]:
            turn.end(EndReason.DONE, text=session.prompts[-1].splitlines()[-1].strip(), usage=Usage(cost=0.0))
            return
        assert session.options.ask is not None
        await session.options.ask([Question("Which colour?")])

    journal = MemoryJournal()
    first = await turns("one").run(agent=provider(asks), journal=journal, execution_id="mine")
    assert [question.text for question in first.questions] == ["Which colour?"]
    answers = {first.questions[0].id: "blue"}
    second = await turns("one").resume(journal, "mine", answers=answers, agent=provider(asks))
    assert second.state.outputs == {"turn1": "blue"}


async def test_a_provider_that_was_given_keeps_its_own_configuration(tmp_path: Path) -> None:
    async def configuration(session: ScriptedSession, turn: Turn) -> None:
        servers = [server.name for server in session.options.mcp_servers]
        turn.end(EndReason.DONE, text=f"{session.options.model} {servers}", usage=Usage(cost=0.0))

    settings = tmp_path / "home" / ".atomic" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('agent = "claude"\nmodel = "of-the-user"\n')
    (settings.parent / "mcp.json").write_text('{"mcpServers": {"files": {"command": "no-such-program"}}}')
    agent = ScriptedProvider(configuration, capabilities=Capabilities(usage=True, cost=True, mcp_servers=True))
    async with agents(agent) as runtime:
        result = await turns("one").run(deps=runtime)
    assert result.state.outputs == {"turn1": "None []"}
    assert result.warnings == ()  # no server was tried


async def test_without_a_name_the_agent_of_the_settings_is_used(tmp_path: Path) -> None:
    calls = [{"match": name, "events": [[0, {"type": "turn_ended", "reason": "done", "text": name}]]} for name in "ab"]
    recording = tmp_path / "calls.jsonl"
    recording.write_text("\n".join(json.dumps(line) for line in ({"atomic_recording": 1}, *calls)) + "\n")
    settings = tmp_path / "home" / ".atomic" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(f'agent = "replay:{recording}"\n')
    async with agents() as runtime:
        assert runtime.configured == [f"replay:{recording}"]
        assert (await turns("a", "b").run(deps=runtime)).state.outputs == {"turn1": "a", "turn2": "b"}


async def test_without_any_name_the_first_agent_that_can_be_used_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current folder of the process does not change meanwhile: other tasks may use it."""
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\ncase "$1" in auth) echo \'{"loggedIn": true}\';; *) echo 2.1.325;; esac\n')
    program.chmod(0o700)
    monkeypatch.setenv("ATOMIC_CLAUDE_PATH", "../claude")
    monkeypatch.setattr(os, "chdir", pytest.fail)
    async with agents() as runtime:
        assert runtime.configured == ["claude"]


async def test_a_function_workflow_takes_agents_in_the_same_way(tmp_path: Path) -> None:
    @workflow(name="letters")
    async def letters(flow: Flow) -> str:
        first = await flow.agent("first", "one")
        await flow.agent("second", "two")
        return first

    async with agents(provider(), max_cost=0.5) as runtime:
        paused = await letters.run(deps=runtime, journal=tmp_path / "runs.db", execution_id="mine")
    assert (paused.status, paused.codes) == (RunStatus.PAUSED, ("max_cost",))
    done = await letters.resume(tmp_path / "runs.db", "mine", agent=provider())
    assert (done.status, done.result) == (RunStatus.COMPLETED, "did one")


async def test_variables_and_a_recording_reach_each_session(tmp_path: Path) -> None:
    async def variables(session: ScriptedSession, turn: Turn) -> None:
        env = session.options.env or {}
        turn.end(EndReason.DONE, text=f"{env['COLOUR']} in {session.options.cwd}", usage=Usage(cost=0.0))

    file = tmp_path / "calls.jsonl"
    async with agents(provider(variables), env={"COLOUR": "blue"}, record=file, cwd=tmp_path) as runtime:
        assert (await turns("one").run(deps=runtime)).state.outputs == {"turn1": f"blue in {tmp_path}"}
    assert '"prompt":"one"' in file.read_text()


# -- caps ---------------------------------------------------------------------------------


async def test_a_run_pauses_at_its_cap_and_says_how_to_continue(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    flow = turns("one", "two", "three")
    async with agents(provider(), max_cost=1) as runtime:
        paused = await flow.run(deps=runtime, journal=path, execution_id="mine")
        assert runtime.spent.usd == 1.0
    assert (paused.status, paused.codes) == (RunStatus.PAUSED, ("max_cost",))
    assert "max_cost is reached: $1.00 of $1.00 spent (to continue: resume with agents(…, max_cost=2))" in str(
        paused.error
    )
    assert paused.remedies == {"max_cost": "max_cost=2"}
    async with agents(provider(), max_cost=1) as runtime:
        again = await flow.resume(path, "mine", deps=runtime)
        assert again.status is RunStatus.PAUSED  # the journal knows what was spent
        assert runtime.spent.usd == 0
    async with agents(provider(), max_cost=2) as runtime:
        assert (await flow.resume(path, "mine", deps=runtime)).status is RunStatus.COMPLETED
        assert runtime.spent.usd == 0.5


async def test_each_run_has_its_own_cap() -> None:
    async with agents(provider(), max_cost=0.5) as runtime:
        for _ in range(2):
            assert (await turns("one").run(deps=runtime)).status is RunStatus.COMPLETED
        assert runtime.spent.usd == 1.0


async def test_tokens_and_time_are_capped_too() -> None:
    async with agents(provider(), max_tokens=4) as runtime:
        assert (await turns("one", "two").run(deps=runtime)).codes == ("max_tokens",)
    async with agents(provider(), max_time=0) as runtime:
        paused = await turns("one").run(deps=runtime)
    assert paused.codes == ("max_time",)
    assert 'to continue: resume with agents(…, max_time="1s")' in str(paused.error)


async def test_a_fork_counts_its_own_spending(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "runs.db") as journal:
        async with agents(provider(), max_cost=1) as runtime:
            await turns("one", "two").run(deps=runtime, journal=journal, execution_id="mine")
            fork = journal.fork("mine", at=1)
            assert (await turns("one", "two").resume(journal, fork, deps=runtime)).status is RunStatus.COMPLETED


async def test_an_agent_without_prices_is_counted_as_python_names_it() -> None:
    agent = ScriptedProvider(echo_without_price, capabilities=Capabilities(usage=True))
    async with agents(agent, max_cost=1) as runtime:
        result = await turns("one").run(deps=runtime)
    (warning,) = result.warnings
    assert warning.data["text"] == (
        "agents: the agent does not report prices: max_cost=1 counts as 100,000 tokens"
        " (max_tokens=N sets another number)"
    )


async def echo_without_price(session: ScriptedSession, turn: Turn) -> None:
    turn.end(EndReason.DONE, text="done", usage=Usage(input=3, output=1))


async def test_so_many_turns_run_at_once() -> None:
    running = 0
    most = 0

    async def count(session: ScriptedSession, turn: Turn) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        turn.end(EndReason.DONE, text="done", usage=Usage(cost=0.0))

    branches = {f"b{n}": graph(State).agent(f"a{n}", "Go.") for n in range(6)}
    flow = graph(State).parallel(branches).compile()
    async with agents(provider(count), max_concurrency=2) as runtime:
        results = await asyncio.gather(flow.run(deps=runtime), flow.run(deps=runtime))
        assert [result.status for result in results] == [RunStatus.COMPLETED] * 2
    assert most == 2


async def test_a_usage_limit_can_stop_the_run() -> None:
    async def limited(session: ScriptedSession, turn: Turn) -> None:
        turn.emit(LimitReached(datetime.now(UTC) + timedelta(hours=2), "try later"))
        turn.end(EndReason.LIMIT)

    async with agents(provider(limited), on_limit="stop") as runtime:
        paused = await turns("one").run(deps=runtime)
        assert paused.codes == ("provider_limit",)
        assert 'to wait for it: resume with agents(…, on_limit="wait")' in str(paused.error)
        with pytest.raises(AgentsPausedError, match="scripted has reached its usage limit"):
            await runtime.turn("two")


# -- outside of a run ---------------------------------------------------------------------


async def test_turns_and_sub_agents_work_without_a_run() -> None:
    entities = Entities()
    entities.add("agent", Entity("coder", prompt="You write code."))
    async with agents(provider(), entities=entities) as runtime:
        assert await runtime.turn("one") == "did one"
        assert (await runtime.bridge.spawn(SubagentRequest("coder", "two"))).text == "did two"
        both = await runtime.bridge.spawn_parallel([SubagentRequest("coder", "a"), SubagentRequest("coder", "b")])
        assert [one.text for one in both] == ["did a", "did b"]
        for _ in range(2):
            assert await runtime.turn("x", session="kept") == "did x"
        assert runtime.spent.usd == 3.0


async def test_without_a_run_a_cap_is_an_error() -> None:
    async with agents(provider(), max_cost=0.5) as runtime:
        await runtime.turn("one")
        with pytest.raises(AgentsPausedError, match=r"max_cost is reached: \$0\.50 of \$0\.50") as caught:
            await runtime.turn("two")
        assert caught.value.code == "max_cost"
        with pytest.raises(AgentsPausedError, match="max_cost is reached"):
            await runtime.bridge.spawn(SubagentRequest("", "three"))
        assert (await turns("one").run(deps=runtime)).status is RunStatus.COMPLETED  # a cap of its own


async def test_without_a_run_nobody_answers_an_agent() -> None:
    async def asks(session: ScriptedSession, turn: Turn) -> None:
        assert session.options.ask is not None
        await session.options.ask([Question("Which colour?")])

    async with agents(provider(asks)) as runtime:
        with pytest.raises(AgentsPausedError, match="the agent asks, and there is nobody to answer: Which colour"):
            await runtime.turn("one")


async def test_warnings_outside_of_a_run_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = ScriptedProvider(echo_without_price, capabilities=Capabilities(usage=True))
    with caplog.at_level(logging.WARNING, "atomic"):
        async with agents(agent, max_cost=1) as runtime:
            await runtime.turn("one")
    assert [record.message.split(":")[0] for record in caplog.records] == ["the agent does not report prices"]


# -- the end ------------------------------------------------------------------------------


class Endless:
    """An agent whose turns do not end by themselves."""

    def __init__(self) -> None:
        self.agent = provider(self.play)
        self.is_running = asyncio.Event()
        self.running = 0

    async def play(self, session: ScriptedSession, turn: Turn) -> None:
        self.running += 1
        self.is_running.set()
        await session.stopped.wait()
        turn.end(EndReason.INTERRUPTED)


async def test_a_turn_that_is_left_running_ends_with_the_agents() -> None:
    endless = Endless()
    async with agents(endless.agent) as runtime:
        outside = asyncio.create_task(runtime.turn("one"))
        run = asyncio.create_task(turns("one").run(deps=runtime))
        named = asyncio.create_task(runtime.turn("two", session="kept"))
        while endless.running < 3:
            await asyncio.sleep(0)
    assert endless.agent.closed == 3
    for task in (outside, run, named):
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_cancellation_ends_the_agents_first() -> None:
    endless = Endless()

    async def program() -> None:
        async with agents(endless.agent) as runtime:
            await turns("one").run(deps=runtime)

    task = asyncio.create_task(program())
    await endless.is_running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endless.agent.closed == 1
    assert os.listdir(tempfile.gettempdir()) == []


async def test_a_second_cancellation_does_not_cut_the_end_short() -> None:
    endless = Endless()
    ending = asyncio.Event()
    may_end = asyncio.Event()

    async def slowly(session: ScriptedSession, turn: Turn) -> None:
        ending.set()
        await may_end.wait()
        session.stopped.set()

    endless.agent.stop = slowly

    async def program() -> None:
        async with agents(endless.agent) as runtime:
            asyncio.get_running_loop().call_soon(started.set_result, asyncio.create_task(runtime.turn("one")))
            await endless.is_running.wait()

    started: asyncio.Future[asyncio.Task[str]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(program())
    await ending.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert endless.agent.closed == 1
    assert (await started).cancelled()


# -- what is refused ----------------------------------------------------------------------


async def test_agent_and_deps_together_are_refused() -> None:
    with pytest.raises(AtomicError, match=r"^agent= and deps= were both given: give agent= for"):
        await turns("one").run(agent=provider(), deps=object())
    with pytest.raises(AtomicError, match=r"agent= and deps= were both given"):
        await anext(aiter(turns("one").stream(agent=provider(), deps=object())))
    with pytest.raises(AtomicError, match=r"agent= and deps= were both given"):
        await turns("one").resume(MemoryJournal(), "mine", agent=provider(), deps=object())


async def test_an_unknown_agent_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(AtomicError, match=r'^Unknown agent: "cluade" \(did you mean "claude"\?\)$'):
        await turns("one").run(agent="cluade", journal=tmp_path / "runs.db")
    assert not (tmp_path / "runs.db").exists()


@pytest.mark.parametrize("name", ["claude", "opencode", "copilot", "codex"])
async def test_a_missing_program_is_named_with_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv(f"ATOMIC_{name.upper()}_PATH", raising=False)
    monkeypatch.setattr("atomic.providers.claude.provider._bundled", lambda: None)
    with pytest.raises(AtomicError, match=rf"^{name}: the program '.+' is not installed \(npm install -g [^\n]+\)$"):
        await turns("one").run(agent=name)


async def test_an_agent_without_a_login_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\ncase "$1" in auth) echo \'{"loggedIn": false}\';; *) echo 2.1.325;; esac\n')
    program.chmod(0o700)
    monkeypatch.setenv("ATOMIC_CLAUDE_PATH", str(program))
    with pytest.raises(AtomicError, match=r"^claude: run `.+` once and log in, or set ANTHROPIC_API_KEY$"):
        await turns("one").run(agent="claude")


async def test_agents_that_have_ended_are_refused(tmp_path: Path) -> None:
    async with agents(provider()) as runtime:
        pass
    ended = r"^these agents have ended: use them inside of their `async with agents\(…\)`$"
    with pytest.raises(AtomicError, match=ended):
        await turns("one").run(deps=runtime, journal=tmp_path / "runs.db")
    assert not (tmp_path / "runs.db").exists()
    with pytest.raises(AtomicError, match=ended):
        await runtime.turn("one")
    with pytest.raises(AtomicError, match=ended):
        await runtime.bridge.spawn(SubagentRequest("", "one"))


async def test_agents_are_refused_in_another_event_loop() -> None:
    errors: list[str] = []

    def elsewhere() -> None:
        for work in (turns("one").run(deps=runtime), runtime.turn("one")):
            try:
                asyncio.run(work)
            except AtomicError as error:
                errors.append(str(error))

    async with agents(provider()) as runtime:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
    loop = "these agents belong to another event loop: open agents(…) in the loop that runs the workflow"
    assert errors == [loop, loop]


async def test_a_session_that_fails_to_close_does_not_keep_others_open() -> None:
    class BadProvider(ScriptedProvider):
        """Its first session fails when it is closed."""

        @asynccontextmanager
        async def start(self, options: SessionOptions) -> AsyncGenerator[ScriptedSession]:
            number = self.opened
            async with super().start(options) as session:
                yield session
            if not number:
                raise ValueError("a mistake of the provider")

    agent = BadProvider(echo, capabilities=CAN)
    opened = agents(agent)
    runtime = await opened.__aenter__()
    for name in ("a", "b"):
        await runtime.turn("one", session=name)
    with pytest.raises(ValueError, match="a mistake of the provider"):
        await opened.__aexit__(None, None, None)
    assert (agent.opened, agent.closed) == (2, 2)
    with pytest.raises(AtomicError, match="these agents have ended"):
        await runtime.turn("three")
    assert os.listdir(tempfile.gettempdir()) == []


async def test_agents_that_could_not_be_opened_say_why_again() -> None:
    made = agents("cluade")
    for _ in range(2):
        with pytest.raises(AtomicError, match="Unknown agent"):
            await made.__aenter__()


async def test_agents_that_are_not_open_are_refused() -> None:
    with pytest.raises(AtomicError, match=r"^agents\(…\) is not open: write `async with agents\(…\) as runtime:`"):
        await turns("one").run(deps=agents(provider()))
    opened = agents(provider())
    async with opened:
        pass
    with pytest.raises(AtomicError, match="were opened already"):
        await opened.__aenter__()


@pytest.mark.parametrize("with_agents", [True, False])
async def test_agents_are_not_opened_in_a_step(with_agents: bool) -> None:
    async def deep() -> str:
        assert is_in_step()
        async with agents(provider()) as runtime:
            return await runtime.turn("one")

    async def work(ctx: Context) -> str:
        return await asyncio.wait_for(deep(), None)

    result = await of_one(work).run(agent=provider() if with_agents else None)
    assert "one: agents(…) cannot be opened in a step of a run: give the run agent=" in str(result.error)


async def test_agents_may_be_opened_between_the_steps_of_a_stream() -> None:
    async for _ in turns("one", "two").stream(agent=provider()):
        async with agents(provider()) as runtime:
            assert await runtime.turn("x") == "did x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent": 3}, r'^3 is not an agent: give a name such as "claude", a provider, or these by role, such as {"":'),
        ({"agent": {1: "claude"}}, "is not an agent"),
        ({"max_cost": -1}, r"^agents\(max_cost=-1\): give a number, 0 or more$"),
        ({"max_cost": float("nan")}, r"^agents\(max_cost=nan\)"),
        ({"max_tokens": True}, r"^agents\(max_tokens=True\)"),
        ({"max_time": "soon"}, r'^agents\(max_time="soon"\): give seconds, or a text such as "90s" or "2h"$'),
        ({"max_concurrency": 0}, r"^agents\(max_concurrency=0\): give a number of turns, 1 or more$"),
        ({"on_limit": "switch"}, r"""^agents\(on_limit='switch'\): give "wait" or "stop"$"""),
        ({"cwd": "nowhere"}, r'^agents\(cwd="nowhere"\): there is no such folder$'),
        ({"project": "nowhere"}, r'^agents\(project="nowhere"\): there is no such folder$'),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(AtomicError, match=message):
        agents(**arguments)


async def test_a_runtime_is_not_an_agent() -> None:
    async with agents(provider()) as runtime:
        with pytest.raises(
            AtomicError, match=r"^agent= was given agents\(…\), which is a runtime: give deps= instead$"
        ):
            await turns("one").run(agent=runtime)  # pyright: ignore[reportArgumentType]  # the mistake


# -- a bridge -----------------------------------------------------------------------------


async def test_a_bridge_serves_turns_and_sub_agents() -> None:
    entities = Entities()
    entities.add("agent", Entity("coder", prompt="You write code.", tools=["read"]))
    entities.add("skill", Entity("plan", prompt="Plan $ARGUMENTS."))
    entities.add("command", Entity("tidy", prompt="Tidy $ARGUMENTS."))
    flow = (
        graph(State)
        .agent("ask", "Ask.")
        .agent("ask-coder", "Ask the coder.", agent="coder")
        .subagent("code", agent="coder", task="Write.")
        .then(parallel_subagent_node("both", agents=[SubagentRequest("coder", "a"), SubagentRequest("coder", "b")]))
        .skill("plan", args="it")
        .command("tidy", args="up")
        .compile()
    )
    result = await flow.run(deps=Bridge(provider(), entities=entities))
    assert result.error is None
    assert [one["text"] for one in result.state.outputs.pop("both")] == ["did a", "did b"]
    assert result.state.outputs == {
        "ask": "did Ask.",
        "ask-coder": "did Ask the coder.",
        "code": "did Write.",
        "skill-plan": "did Plan it.",
        "command-tidy": "did Tidy up.",
    }


async def test_a_node_may_use_the_bridge_itself() -> None:
    async def spawn(ctx: NodeContext[State, Bridge]) -> dict[str, Any]:
        return {"outputs": {"one": (await ctx.deps.spawn(SubagentRequest("", "it"))).text}}

    flow = graph(State).then(node("one", spawn)).compile()
    assert output_of(await flow.run(deps=Bridge(provider()))) == "did it"


async def keep_a_session(deps: WorkflowRuntime) -> Any:
    return await deps.turn("x", session="kept")


async def use_another_agent(deps: WorkflowRuntime) -> Any:
    return await deps.turn("x", provider="opencode")


async def make_a_workspace(deps: WorkflowRuntime) -> Any:
    return deps.workspace("x")


async def read_tasks(deps: WorkflowRuntime) -> Any:
    return deps.tasks.read()


async def ask_the_user(deps: WorkflowRuntime) -> Any:
    return deps.broker


async def find_a_skill(deps: WorkflowRuntime) -> Any:
    return deps.entities.require("skill", "x")


@pytest.mark.parametrize(
    ("work", "what"),
    [
        (keep_a_session, 'keep the session "kept" for other nodes'),
        (use_another_agent, 'use the agent "opencode"'),
        (make_a_workspace, "make workspaces"),
        (read_tasks, "keep a task list"),
        (ask_the_user, "ask the user"),
        (find_a_skill, 'find the skill "x" without entities='),
    ],
)
async def test_what_a_bridge_cannot_do_is_refused(work: Callable[[WorkflowRuntime], Awaitable[Any]], what: str) -> None:
    async def run(ctx: Context) -> Any:
        return await work(ctx.deps)

    result = await of_one(run).run(deps=Bridge(provider()))
    how = "run this in `async with agents(…) as runtime` with deps=runtime"
    assert str(result.error) == f"one: a Bridge cannot {what}: {how}"


async def test_a_bridge_moves_what_its_agent_cannot_take_into_the_prompt() -> None:
    async def ask(ctx: Context) -> str:
        return await ctx.deps.turn("Go.", agent="coder", strict=False)

    entities = Entities()
    entities.add("agent", Entity("coder", prompt="You write code.", tools=["read"]))
    agent = ScriptedProvider(echo, capabilities=Capabilities())
    result = await of_one(ask).run(deps=Bridge(agent, entities=entities))
    assert output_of(result) == "did Go.\n---\n\nYou write code."


async def test_a_failed_turn_of_a_bridge_fails_the_node() -> None:
    result = await turns("one").run(deps=Bridge(provider(fails)))
    assert str(result.error) == "turn1: the model is ill"


async def test_a_node_without_agents_says_how_to_give_some() -> None:
    result = await turns("one").run()
    assert str(result.error) == (
        'turn1: needs agents: give the run agent="claude", or deps= with the runtime of `agents(…)`'
    )


# -- types --------------------------------------------------------------------------------


def check_that_it_is_a_runtime(stack: AsyncExitStack) -> Any:
    """Let pyright check that what `agents` opens has every member of a runtime."""

    async def opened() -> WorkflowRuntime:
        return await stack.enter_async_context(agents("claude"))

    return opened


def test_the_name_costs_nothing_until_it_is_used() -> None:
    names = ("atomic.agents", "atomic.wiring")
    code = f"import sys, atomic.workflows; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
