"""Nodes that need an agent, an entity or a tool, with a runtime in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atomic.base.usage import Usage
from atomic.workflows import (
    GraphError,
    MemoryJournal,
    Node,
    Retry,
    RunStatus,
    State,
    SubagentRequest,
    SubagentResult,
    Work,
    agent_node,
    clear_context_node,
    command_node,
    context_monitor_node,
    custom_tool_node,
    graph,
    parallel_subagent_node,
    skill_node,
    subagent_node,
)
from atomic.workspaces import OpenWorkspace
from tests.graph.engine.small import RUN, S, ended, failed, within
from tests.runs.small_runtime import Bridge, Entity, Meter, Named, Runtime

# Agents


async def test_an_agent_node_is_one_turn_in_a_fresh_session() -> None:
    runtime = Runtime(says="fixed")
    compiled = graph(S).agent("fix", lambda s: f"fix {s.text}", provider="claude", tools=["Read"]).compile(model="m")
    state = (await ended(compiled, {"text": "login"}, deps=runtime)).state
    assert state.outputs == {"fix": "fixed"}
    (turn,) = runtime.turns
    assert (turn.prompt, turn.options) == ("fix login", {"provider": "claude", "model": "m", "tools": ["Read"]})


async def test_an_agent_node_continues_in_a_named_session() -> None:
    runtime = Runtime()
    await ended(graph(S).agent("a", "one", session="main").agent("b", "two", session="main").compile(), deps=runtime)
    assert [turn.options for turn in runtime.turns] == [{"session": "main"}, {"session": "main"}]


async def test_an_agent_by_name_resolves_its_entity() -> None:
    runtime = Runtime()
    runtime.entities.add("agent", Entity("debugger", "You debug.", model="opus", tools=["Bash"]))
    compiled = graph(S).then(agent_node(agent="debugger", prompt="find it")).compile()
    assert (await ended(compiled, deps=runtime)).state.outputs == {"agent-debugger": "done"}
    (turn,) = runtime.turns
    assert turn.prompt == "find it"
    assert turn.options == {"agent": "debugger"}  # the runtime knows its model and tools


async def test_an_unknown_agent_is_reported_with_the_nearest_name_when_the_node_runs() -> None:
    runtime = Runtime()
    runtime.entities.add("agent", Entity("debugger"))
    compiled = graph(S).then(agent_node(agent="debuger", prompt="x")).compile()
    assert '"debugger"' in await failed(compiled, "agent-debuger: ", deps=runtime)
    assert runtime.turns == []


TOO_LITTLE: list[tuple[Node[S], str]] = [(agent_node("a"), "prompt"), (agent_node(prompt="x"), "id")]


@pytest.mark.parametrize(("node", "words"), TOO_LITTLE)
def test_an_incomplete_agent_node_is_refused(node: Node[S], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        graph(S).then(node).compile()


class Plan(msgspec.Struct):
    steps: list[str]


@pytest.mark.parametrize("says", ['{"steps": ["a"]}', 'Here it is:\n```json\n{"steps": ["a"]}\n```\nDone.'])
async def test_a_schema_reads_the_answer(says: str) -> None:
    compiled = graph(S).agent("plan", "plan it", output_schema=Plan).compile()
    assert (await ended(compiled, deps=Runtime(says=says))).state.outputs == {"plan": {"steps": ["a"]}}


@pytest.mark.parametrize("isolate", [False, True])
async def test_the_prompt_asks_for_what_a_schema_describes(*, isolate: bool) -> None:
    @asynccontextmanager
    async def workspace(**_: Any) -> AsyncGenerator[OpenWorkspace]:
        yield cast("OpenWorkspace", SimpleNamespace(work=Work("plan", "Plan", 1, "a", "b")))

    runtime = Runtime(says='{"steps": ["a"]}', workspace=workspace)
    compiled = graph(S).agent("plan", "plan it", output_schema=Plan, isolate=isolate).compile()
    output = (await ended(compiled, deps=runtime)).state.outputs["plan"]
    assert (output["value"] if isolate else output) == {"steps": ["a"]}
    prompt = runtime.turns[0].prompt
    assert prompt.startswith("plan it\n\nAnswer with JSON alone")
    assert '"steps":{"type":"array"' in prompt


async def test_an_answer_that_does_not_match_the_schema_fails() -> None:
    compiled = graph(S).agent("plan", "plan it", output_schema=Plan).compile()
    assert "steps" in await failed(compiled, "plan: ", deps=Runtime(says='{"stops": []}'))


async def test_an_output_mapper_takes_the_answer() -> None:
    compiled = graph(S).agent("a", "x", output_mapper=lambda answer, s: {"text": answer + s.text}).compile()
    state = (await ended(compiled, {"text": "!"}, deps=Runtime())).state
    assert (state.text, state.outputs) == ("done!", {})


# Sub-agents


def runtime_with(*agents: str) -> Runtime:
    runtime = Runtime()
    for name in agents:
        runtime.entities.add("agent", Entity(name))
    return runtime


async def test_a_subagent_is_spawned_with_its_task() -> None:
    runtime = runtime_with("planner")
    compiled = graph(S).subagent(
        "plan", agent="planner", task=lambda s: s.text, system_prompt="Be brief.", tools=["Read"], model="opus"
    )
    journal = MemoryJournal()
    state = (await ended(compiled.compile(), {"text": "login"}, deps=runtime, journal=journal, execution_id=RUN)).state
    assert state.outputs == {"plan": "planner did login"}
    (request,) = runtime.bridge.requests
    assert (request.agent, request.task, request.system_prompt) == ("planner", "login", "Be brief.")
    assert (request.tools, request.model) == (["Read"], "opus")
    assert request.id == journal.records(RUN)[0].step_id


async def test_a_failed_subagent_fails_the_node_at_once() -> None:
    runtime = runtime_with("planner")
    runtime.bridge = Bridge(lambda request: SubagentResult(request.id, success=False, error="out of money"))
    text = await failed(graph(S).subagent("plan", agent="planner", task="x").compile(), "plan: ", deps=runtime)
    assert "out of money" in text
    assert len(runtime.bridge.requests) == 1  # agents are retried only on request


async def test_a_subagent_is_tried_again_where_asked() -> None:
    runtime = runtime_with("planner")
    answers = iter([SubagentResult("", success=False, error="busy"), SubagentResult("", success=True, text="ok")])
    runtime.bridge = Bridge(lambda request: next(answers))
    compiled = graph(S).subagent("plan", agent="planner", task="x", retry=Retry(0)).compile()
    assert (await ended(compiled, deps=runtime)).state.outputs == {"plan": "ok"}


async def test_an_unknown_subagent_is_reported_before_anything_is_spent() -> None:
    runtime = runtime_with("planner", "worker")
    text = await failed(graph(S).subagent("plan", agent="plannr", task="x").compile(), "plan: ", deps=runtime)
    assert "planner" in text
    assert "worker" in text
    assert runtime.bridge.requests == []


async def test_usage_of_a_subagent_is_in_its_record() -> None:
    runtime = runtime_with("planner")
    runtime.bridge = Bridge(lambda request: SubagentResult(request.id, success=True, usage=Usage(7, cost=0.5)))
    journal = MemoryJournal()
    compiled = graph(S).subagent("plan", agent="planner", task="x").compile()
    await ended(compiled, deps=runtime, journal=journal, execution_id=RUN)
    assert journal.records(RUN)[0].usage == {"input": 7, "output": 0, "cached": 0, "cost": 0.5}


async def test_several_subagents_are_collected_failures_included() -> None:
    runtime = runtime_with("a", "b")
    runtime.bridge = Bridge(
        lambda request: SubagentResult(request.id, success=request.agent == "a", text="ok", error="no", usage=Usage(1))
    )
    requests = [SubagentRequest("a", "x"), SubagentRequest("b", "y")]
    journal = MemoryJournal()
    compiled = graph(S).parallel_subagent("p", agents=requests, max_concurrency=3).compile(model="m")
    state = (await ended(compiled, deps=runtime, journal=journal, execution_id=RUN)).state
    assert [result["success"] for result in state.outputs["p"]] == [True, False]
    assert runtime.bridge.limits == [3]
    assert len({request.id for request in runtime.bridge.requests}) == 2
    assert [request.model for request in runtime.bridge.requests] == ["m", "m"]
    assert journal.records(RUN)[0].usage == {"input": 2, "output": 0, "cached": 0}


async def test_several_subagents_merge_with_the_given_function() -> None:
    compiled = graph(S).then(
        parallel_subagent_node(
            "p",
            agents=lambda s: [SubagentRequest("a", f"{s.text}{number}") for number in range(2)],
            merge=lambda results, state: {"log": [result.text for result in results], "text": state.text + "!"},
        )
    )
    state = (await ended(compiled.compile(), {"text": "t"}, deps=runtime_with("a"))).state
    assert (state.log, state.text, state.outputs) == (["a did t0", "a did t1"], "t!", {})


async def test_one_unknown_agent_among_several_is_reported_before_any_starts() -> None:
    runtime = runtime_with("a")
    requests = [SubagentRequest("a", "x"), SubagentRequest("b", "y")]
    await failed(graph(S).parallel_subagent("p", agents=requests).compile(), "p: ", deps=runtime)
    assert runtime.bridge.requests == []


# Skills and commands


async def test_a_skill_is_resolved_when_it_runs_and_filled_in() -> None:
    runtime = Runtime()
    compiled = graph(S).skill("commit", args=lambda s: s.text).command("git:push", args="now").compile()
    runtime.entities.add("skill", Entity("commit", "Commit: $ARGUMENTS"))
    runtime.entities.add("command", Entity("git:push", "Push $ARGUMENTS", model="haiku", tools=["Bash"]))
    state = (await ended(compiled, {"text": "fix login"}, deps=runtime)).state
    assert [turn.prompt for turn in runtime.turns] == ["Commit: fix login", "Push now"]
    assert runtime.turns[0].options == {}  # a fresh session
    assert runtime.turns[1].options == {"model": "haiku", "tools": ["Bash"]}
    assert set(state.outputs) == {"skill-commit", "command-git-push"} or set(state.outputs) == {
        "skill-commit",
        "command-git:push",
    }


async def test_skills_and_commands_take_an_id() -> None:
    runtime = Runtime()
    runtime.entities.add("skill", Entity("commit", "x"))
    runtime.entities.add("command", Entity("push", "y"))
    compiled = graph(S).then(skill_node("commit", id="one")).then(command_node("push", id="two")).compile()
    assert compiled.node_ids == ("one", "two")
    assert set((await ended(compiled, deps=runtime)).state.outputs) == {"one", "two"}
    assert graph(S).skill("commit").command("push").compile().node_ids == ("skill-commit", "command-push")


async def test_an_unknown_skill_fails_its_node() -> None:
    runtime = Runtime()
    runtime.entities.add("skill", Entity("commit", "x"))
    assert '"commit"' in await failed(graph(S).skill("comit").compile(), "skill-comit: ", deps=runtime)


@pytest.mark.parametrize(
    ("of_node", "of_entity", "of_graph", "expected"),
    [
        ("node", "entity", "graph", "node"),
        (None, "entity", None, "entity"),
        (None, None, "graph", "graph"),
        (None, "inherit", "graph", "graph"),
        ("inherit", "inherit", "graph", "graph"),
        (None, "inherit", None, None),
    ],
)
async def test_which_model_a_skill_gets(
    of_node: str | None, of_entity: str | None, of_graph: str | None, expected: str | None
) -> None:
    runtime = Runtime()
    runtime.entities.add("skill", Entity("commit", "x", model=of_entity))
    await ended(graph(S).skill("commit", model=of_node).compile(model=of_graph), deps=runtime)
    assert runtime.turns[0].options.get("model") == expected


# Sessions


async def test_clearing_ends_a_session() -> None:
    runtime = Runtime()
    compiled = graph(S).then(clear_context_node("c", session="main")).clear_context("d", session="other").compile()
    await ended(compiled, deps=runtime)
    assert runtime.sessions.calls == [("clear", "main"), ("clear", "other")]


@pytest.mark.parametrize(
    ("used", "threshold", "action", "calls"),
    [
        (46, 45, "summarize", [("compact", "main")]),
        (46, 45, "recreate", [("clear", "main")]),
        (46, 45, "warn", []),
        (44, 45, "summarize", []),
        (60, 70, "summarize", []),
    ],
)
async def test_a_monitor_acts_above_its_threshold(
    used: int, threshold: float, action: Any, calls: list[tuple[str, str]]
) -> None:
    runtime = Runtime()
    runtime.sessions.meters["main"] = Meter(used, 100)
    compiled = graph(S).context_monitor("m", session="main", threshold=threshold, action=action).compile()
    events = [event async for event in compiled.stream(modes=["events"], deps=runtime)]
    assert runtime.sessions.calls == calls
    warned = any(event.data.type == "warning" for event in events)
    assert warned == (used > threshold)


async def test_a_monitor_of_a_missing_or_silent_session_does_nothing() -> None:
    runtime = Runtime()
    runtime.sessions.meters["mute"] = Meter(100, 0)
    compiled = graph(S).context_monitor("m", session="main").context_monitor("n", session="mute").compile()
    await ended(compiled, deps=runtime)
    assert runtime.sessions.calls == []


@pytest.mark.parametrize("options", [{"threshold": -1}, {"threshold": 101}, {"action": "explode"}])
def test_a_monitor_with_bad_options_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=str(next(iter(options.values())))):
        graph(S).then(context_monitor_node("m", session="main", **options)).compile()


# Custom tools


async def test_a_custom_tool_is_called_by_its_name() -> None:
    async def shout(text: str) -> str:
        return text.upper()

    def add(a: int, b: int = 1) -> int:
        return a + b

    runtime = Runtime(tools=Named({"shout": shout, "add": add, "now": lambda: "now"}))
    compiled = (
        graph(S)
        .custom_tool("s", tool="shout", args=lambda s: {"text": s.text})
        .custom_tool("a", tool="add", args={"a": 1}, output_mapper=lambda result, s: {"count": result})
        .then(custom_tool_node("n", tool="now"))
        .compile()
    )
    state = (await ended(compiled, {"text": "hi"}, deps=runtime)).state
    assert (state.outputs, state.count) == ({"s": "HI", "n": "now"}, 2)


async def test_an_unknown_tool_fails_its_node() -> None:
    runtime = Runtime(tools=Named({"shout": str.upper}))
    assert '"shout"' in await failed(graph(S).custom_tool("t", tool="shuot").compile(), "t: ", deps=runtime)


# Without a runtime


NEED_A_RUNTIME: list[Node[S]] = [
    agent_node("n", "x"),
    agent_node("n", "x", agent="a"),
    subagent_node("n", agent="a", task="x"),
    parallel_subagent_node("n", agents=[SubagentRequest("a", "x")]),
    skill_node("s", id="n"),
    command_node("c", id="n"),
    clear_context_node("n", session="main"),
    context_monitor_node("n", session="main"),
    custom_tool_node("n", tool="t"),
]


@pytest.mark.parametrize("node", NEED_A_RUNTIME)
async def test_without_a_runtime_a_node_fails_with_a_hint(node: Node[S]) -> None:
    result = await within(graph(S).then(node).compile().run())
    assert result.status is RunStatus.FAILED
    text = str(result.error)
    assert text.startswith("n: ")
    assert "deps" in text
    assert "AttributeError" not in text


async def test_the_result_of_a_subagent_can_be_kept_in_a_state() -> None:
    class Kept(State):
        result: SubagentResult | None = None

    journal = MemoryJournal()
    given = SubagentResult("a", True, "done", usage=Usage(7, 1), tool_calls=2)

    async def keep(ctx: Any) -> dict[str, Any]:
        return {"result": given}

    compiled = graph(Kept).node("keep", keep).compile()
    live = (await within(compiled.run(journal=journal, execution_id=RUN))).state.result
    assert live == given
    assert compiled.load(journal, RUN).result == given
