"""LangGraph's tests of its graphs, with its expected values.

All are of `libs/langgraph/tests/test_pregel.py`.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any

import pytest

from atomic.workflows import (
    GraphError,
    Journal,
    NodeContext,
    QuestionError,
    Retry,
    RunStatus,
    State,
    graph,
    node,
    reducers,
)
from tests.ports.source import port

Update = dict[str, Any]


def writes(**update: Any) -> Callable[[NodeContext[Any]], Awaitable[Update]]:
    """Return the function of a node that returns this update."""

    async def write(ctx: NodeContext[Any]) -> Update:
        return update

    return write


def sorted_add(left: list[str], right: list[str]) -> list[str]:
    return sorted([*left, *right])


@port("LangGraph", "test_cond_edge_after_send", lines=20)
async def test_two_items_and_then_one_node() -> None:
    class S(State):
        log: Annotated[list[str], reducers.concat] = []

    app = (
        graph(S)
        .node("1", writes(log=["1"]))
        .map("send", over=lambda s: [1, 2], node=node("2", writes(log=["2"])))
        .node("3", writes(log=["3"]))
        .compile()
    )
    assert (await app.run({"log": ["0"]})).state.log == ["0", "1", "2", "2", "3"]


@port("LangGraph", "test_conditional_entrypoint_to_multiple_state_graph", lines=25)
async def test_a_node_for_each_item() -> None:
    class S(State):
        locations: list[str] = []
        results: Annotated[list[str], reducers.concat] = []

    async def get_weather(ctx: NodeContext[S]) -> Update:
        weather = "sunny" if len(ctx.item) > 2 else "cloudy"
        return {"results": [f"It's {weather} in {ctx.item}"]}

    app = graph(S).map("send", over=lambda s: s.locations, node=node("get_weather", get_weather)).compile()
    ended = await app.run({"locations": ["sf", "nyc"]})
    assert ended.state.results == ["It's cloudy in sf", "It's sunny in nyc"]


@port("LangGraph", "test_conditional_entrypoint_graph_state", lines=27)
async def test_a_condition_decides_where_to_start() -> None:
    class S(State):
        input: str = ""
        output: str = ""

    async def left(ctx: NodeContext[S]) -> Update:
        return {"output": ctx.state.input + "->left"}

    async def right(ctx: NodeContext[S]) -> Update:
        return {"output": ctx.state.input + "->right"}

    app = graph(S).if_(lambda s: len(s.input) > 10, then=node("right", right), else_=node("left", left)).compile()
    steps = [step async for step in app.stream({"input": "what is weather in sf"})]
    assert [(step.node_id, step.update) for step in steps] == [("right", {"output": "what is weather in sf->right"})]


@port("LangGraph", "test_conditional_state_graph_with_list_edge_inputs", lines=10)
async def test_two_nodes_at_once() -> None:
    class S(State):
        foo: Annotated[list[str], reducers.concat] = []

    app = graph(S).parallel([node("A", writes(foo=["A"])), node("B", writes(foo=["B"]))]).compile()
    assert (await app.run()).state.foo == ["A", "B"]


@port("LangGraph", "test_in_one_fan_out_state_graph_waiting_edge", lines=42)
async def test_a_long_and_a_short_branch_join() -> None:
    class S(State):
        query: str = ""
        answer: str = ""
        docs: Annotated[list[str], sorted_add] = []

    async def rewrite_query(ctx: NodeContext[S]) -> Update:
        return {"query": f"query: {ctx.state.query}"}

    async def analyzer_one(ctx: NodeContext[S]) -> Update:
        return {"query": f"analyzed: {ctx.state.query}"}

    async def qa(ctx: NodeContext[S]) -> Update:
        return {"answer": ",".join(ctx.state.docs)}

    long = graph(S).node("analyzer_one", analyzer_one).node("retriever_one", writes(docs=["doc1", "doc2"]))
    short = node("retriever_two", writes(docs=["doc3", "doc4"]))
    app = graph(S).node("rewrite_query", rewrite_query).parallel({"one": long, "two": short}).node("qa", qa).compile()
    state = (await app.run({"query": "what is weather in sf"})).state
    assert state.query == "analyzed: query: what is weather in sf"
    assert state.docs == ["doc1", "doc2", "doc3", "doc4"]
    assert state.answer == "doc1,doc2,doc3,doc4"


@port("LangGraph", "test_in_one_fan_out_state_graph_defer_node", lines=44)
async def test_a_node_waits_for_what_follows_a_branch() -> None:
    class S(State):
        query: str = ""
        answer: str = ""
        docs: Annotated[list[str], sorted_add] = []

    async def rewrite_query(ctx: NodeContext[S]) -> Update:
        return {"query": f"query: {ctx.state.query}"}

    async def analyzer_one(ctx: NodeContext[S]) -> Update:
        return {"query": f"analyzed: {ctx.state.query}"}

    async def qa(ctx: NodeContext[S]) -> Update:
        return {"answer": ",".join(ctx.state.docs)}

    long = graph(S).node("retriever_one", writes(docs=["doc1", "doc2"])).node("analyzer_one", analyzer_one)
    short = node("retriever_two", writes(docs=["doc3", "doc4"]))
    app = graph(S).node("rewrite_query", rewrite_query).parallel({"one": long, "two": short}).node("qa", qa).compile()
    state = (await app.run({"query": "what is weather in sf"})).state
    assert state.query == "analyzed: query: what is weather in sf"
    assert state.docs == ["doc1", "doc2", "doc3", "doc4"]
    assert state.answer == "doc1,doc2,doc3,doc4"


@port("LangGraph", "test_in_one_fan_out_state_graph_waiting_edge_multiple", lines=53)
async def test_a_fork_in_a_cycle() -> None:
    class S(State):
        query: str = ""
        answer: str = ""
        docs: Annotated[list[str], sorted_add] = []

    async def rewrite_query(ctx: NodeContext[S]) -> Update:
        return {"query": f"query: {ctx.state.query}"}

    async def analyzer_one(ctx: NodeContext[S]) -> Update:
        return {"query": f"analyzed: {ctx.state.query}"}

    async def qa(ctx: NodeContext[S]) -> Update:
        return {"answer": ",".join(ctx.state.docs)}

    long = graph(S).node("analyzer_one", analyzer_one).node("retriever_one", writes(docs=["doc1", "doc2"]))
    short = node("retriever_two", writes(docs=["doc3", "doc4"]))
    body = graph(S).node("rewrite_query", rewrite_query).parallel({"one": long, "two": short})
    app = graph(S).loop(body, until=lambda s: s.query.count("analyzed") > 1).node("qa", qa).compile()
    state = (await app.run({"query": "what is weather in sf"})).state
    assert state.query == "analyzed: query: analyzed: query: what is weather in sf"
    assert state.docs == ["doc1", "doc1", "doc2", "doc2", "doc3", "doc3", "doc4", "doc4"]
    assert state.answer == "doc1,doc1,doc2,doc2,doc3,doc3,doc4,doc4"


@port("LangGraph", "test_simple_multi_edge", lines=21)
async def test_a_branch_that_nothing_waits_for() -> None:
    class S(State):
        my_key: Annotated[str, reducers.concat] = ""

    branches = [node("side", writes()), node("other", writes(my_key="_more"))]
    app = graph(S).node("up", writes()).parallel(branches).node("down", writes()).compile()
    steps = [step async for step in app.stream({"my_key": "my_value"})]
    assert steps[-1].state.my_key == "my_value_more"
    assert {step.node_id for step in steps} >= {"up", "side", "other", "down"}


@port("LangGraph", "test_nested_graph", lines=32)
async def test_a_graph_in_a_graph_with_another_state() -> None:
    class InnerState(State):
        my_key: str = ""
        my_other_key: str = ""

    class S(State):
        my_key: str = ""

    async def up(ctx: NodeContext[InnerState]) -> Update:
        return {"my_key": ctx.state.my_key + " there", "my_other_key": ctx.state.my_key}

    async def side(ctx: NodeContext[S]) -> Update:
        return {"my_key": ctx.state.my_key + " and back again"}

    inner = graph(InnerState).node("up", up).compile("inner")
    app = (
        graph(S)
        .subgraph(
            "inner",
            inner,
            input_mapper=lambda s: {"my_key": s.my_key},
            output_mapper=lambda child, s: {"my_key": child.my_key},
        )
        .node("side", side)
        .compile()
    )
    assert (await app.run({"my_key": "my value"})).state.my_key == "my value there and back again"


@port("LangGraph", "test_enum_node_names", lines=13)
async def test_the_id_of_a_node_may_be_a_member_of_an_enum() -> None:
    class NodeName(StrEnum):
        BAZ = "baz"

    class S(State):
        foo: str = ""
        bar: str = ""

    async def baz(ctx: NodeContext[S]) -> Update:
        return {"bar": ctx.state.foo + "!"}

    app = graph(S).node(NodeName.BAZ, baz).compile()
    state = (await app.run({"foo": "hello"})).state
    assert (state.foo, state.bar) == ("hello", "hello!")


@port("LangGraph", "test_add_sequence", lines=52)
async def test_chains_of_nodes() -> None:
    class S(State):
        foo: Annotated[list[str], reducers.concat] = []
        bar: str = ""

    step1 = node("step1", writes(foo=["step1"], bar="baz"))
    step2 = node("step2", writes(foo=["step2"]))
    with pytest.raises(GraphError, match="the graph has no nodes"):
        graph(S).compile()
    with pytest.raises(GraphError, match="step1"):
        graph(S).then(step1).then(step1).compile()
    steps = [step async for step in graph(S).then([step1, step2]).compile().stream()]
    assert (steps[-1].state.foo, steps[-1].state.bar) == (["step1", "step2"], "baz")
    assert [(step.node_id, step.update) for step in steps] == [
        ("step1", {"foo": ["step1"], "bar": "baz"}),
        ("step2", {"foo": ["step2"]}),
    ]
    a, b, c, d, e = (node(name, writes(foo=[name])) for name in "abcde")
    app = graph(S).then([a, b]).if_(lambda s: s.foo[0] == "a", then=[d, e], else_=c).compile()
    assert (await app.run()).state.foo == ["a", "b", "d", "e"]
    assert (await app.run({"foo": ["start"]})).state.foo == ["start", "a", "b", "c"]


@port("LangGraph", "test_interrupt_loop", lines=52)
async def test_a_question_is_asked_until_the_answer_is_right(journal: Journal) -> None:
    class S(State):
        age: int = 0

    async def ask_age(ctx: NodeContext[S]) -> Update:
        question = "How old are you?"
        while True:
            value = await ctx.ask(question)
            if value.isdigit() and int(value) >= 18:
                return {"age": int(value)}
            question = "invalid response"

    app = graph(S).node("node", ask_age).compile()
    ended = await app.run(journal=journal, execution_id="1")
    asked: list[str] = []
    for answer in ("13", "15", "19"):
        asked.append(ended.questions[0].text)
        ended = await app.resume(journal, "1", answers={ended.questions[0].id: answer})
    assert asked == ["How old are you?", "invalid response", "invalid response"]
    assert ended.state.age == 19


@port("LangGraph", "test_multiple_interrupt_state_persistence", lines=23)
async def test_the_state_does_not_change_before_the_node_returns(journal: Journal) -> None:
    class S(State):
        steps: Annotated[list[str], reducers.concat] = []

    async def interruptible_node(ctx: NodeContext[S]) -> Update:
        return {"steps": [await ctx.ask("First interrupt"), await ctx.ask("Second interrupt")]}

    app = graph(S).node("node", interruptible_node).compile()
    ended = await app.run(journal=journal, execution_id="1")
    for answer in ("step1", "step2"):
        assert app.load(journal, "1").steps == []
        ended = await app.resume(journal, "1", answers={ended.questions[0].id: answer})
    assert ended.state.steps == app.load(journal, "1").steps == ["step1", "step2"]


@port("LangGraph", "test_concurrent_execution_thread_safety", lines=25)
def test_one_graph_runs_in_ten_threads() -> None:
    class S(State):
        counter: Annotated[int, reducers.sum] = 0

    app = graph(S).node("node", writes(counter=1)).compile()
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(app.run()).state.counter)) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1] * 10


@port("LangGraph", "test_multi_resume", lines=51)
async def test_five_questions_are_answered_at_once(journal: Journal) -> None:
    class S(State):
        prompts: list[str] = []
        human_inputs: Annotated[list[str], reducers.concat] = []

    async def get_human_input(ctx: NodeContext[S]) -> Update:
        return {"human_inputs": [await ctx.ask(ctx.item)]}

    ask = node("get_human_input", get_human_input)
    app = graph(S).map("assign", over=lambda s: s.prompts, node=ask, max_concurrency=0).compile()
    prompts = ["a", "b", "c", "d", "e"]
    paused = await app.run({"prompts": prompts}, journal=journal, execution_id="1")
    assert {question.text for question in paused.questions} == set(prompts)
    answers = {question.id: f"human input for prompt {question.text}" for question in paused.questions}
    ended = await app.resume(journal, "1", answers=answers)
    assert ended.state.human_inputs == [f"human input for prompt {prompt}" for prompt in prompts]


@port("LangGraph", "test_parallel_interrupts", lines=79)
async def test_two_questions_are_answered_one_by_one(journal: Journal) -> None:
    class S(State):
        prompts: list[str] = []
        human_inputs: Annotated[list[str], reducers.concat] = []

    async def get_human_input(ctx: NodeContext[S]) -> Update:
        return {"human_inputs": [await ctx.ask(ctx.item)]}

    app = graph(S).map("assign", over=lambda s: s.prompts, node=node("get_human_input", get_human_input)).compile()
    ended = await app.run({"prompts": ["a", "b"]}, journal=journal, execution_id="1")
    invokes = 1
    while ended.questions:
        ended = await app.resume(journal, "1", answers={ended.questions[0].id: f"Resume #{invokes}"})
        invokes += 1
    assert invokes == 3
    assert sorted(ended.state.human_inputs) == ["Resume #1", "Resume #2"]


@port("LangGraph", "test_parallel_interrupts_double", lines=76)
async def test_four_questions_in_two_branches_of_two_items(journal: Journal) -> None:
    class S(State):
        prompts: list[str] = []
        human_inputs: Annotated[list[str], reducers.concat] = []

    async def get_input(ctx: NodeContext[S]) -> Update:
        return {"human_inputs": [await ctx.ask(ctx.item)]}

    child = graph(S).parallel([node("get_human_input", get_input), node("get_dolphin_input", get_input)])
    app = graph(S).map("assign", over=lambda s: s.prompts, node=child).compile()
    ended = await app.run({"prompts": ["a", "b"]}, journal=journal, execution_id="1")
    invokes = 1
    while ended.questions:
        ended = await app.resume(journal, "1", answers={ended.questions[0].id: f"Resume #{invokes}"})
        invokes += 1
    assert invokes == 5
    assert len(ended.state.human_inputs) == 4


@port("LangGraph", "test_null_resume_disallowed_with_multiple_interrupts", lines=37)
async def test_an_answer_needs_the_id_of_its_question(journal: Journal) -> None:
    class S(State):
        text_1: str = "original text 1"
        text_2: str = "original text 2"

    async def human_node_1(ctx: NodeContext[S]) -> Update:
        return {"text_1": await ctx.ask(ctx.state.text_1)}

    async def human_node_2(ctx: NodeContext[S]) -> Update:
        return {"text_2": await ctx.ask(ctx.state.text_2)}

    app = graph(S).parallel([node("human_node_1", human_node_1), node("human_node_2", human_node_2)]).compile()
    paused = await app.run(journal=journal, execution_id="1")
    with pytest.raises(QuestionError):
        await app.resume(journal, "1", answers={"": "singular resume"})
    answers = {question.id: f"resume for prompt: {question.text}" for question in paused.questions}
    state = (await app.resume(journal, "1", answers=answers)).state
    assert state.text_1 == "resume for prompt: original text 1"
    assert state.text_2 == "resume for prompt: original text 2"


@port("LangGraph", "test_pending_writes_resume", lines=48)
async def test_a_finished_branch_is_not_repeated_after_another_one_failed(journal: Journal) -> None:
    class S(State):
        value: Annotated[int, reducers.sum] = 0

    calls = {"one": 0, "two": 0}
    broken = True

    async def one(ctx: NodeContext[S]) -> Update:
        calls["one"] += 1
        return {"value": 2}

    async def two(ctx: NodeContext[S]) -> Update:
        calls["two"] += 1
        if broken:
            raise ConnectionError("I'm not good")
        return {"value": 3}

    app = graph(S).parallel([node("one", one), node("two", two, retry=Retry(0, attempts=2))]).compile()
    ended = await app.run({"value": 1}, journal=journal, execution_id="1")
    assert "I'm not good" in str(ended.error)
    assert calls == {"one": 1, "two": 2}
    assert (await app.resume(journal, "1")).status is RunStatus.FAILED
    assert calls == {"one": 1, "two": 4}
    broken = False
    assert (await app.resume(journal, "1")).state.value == 6


@port("LangGraph", "test_fork_and_update_task_results", lines=40)
async def test_a_run_is_forked_from_its_middle_and_its_end(journal: Journal) -> None:
    def joined(before: str, name: str) -> str:
        return f"{before} > {name}" if before else name

    class S(State):
        name: Annotated[str, joined] = ""

    async def two(ctx: NodeContext[S]) -> Update:
        return {"name": "two"}

    names = [("one", writes(name="one")), ("two", two), ("two-again", two), ("three", writes(name="three"))]
    app = graph(S).then([node(id, run) for id, run in names]).compile()
    assert (await app.run({"name": "start"}, journal=journal, execution_id="1")).state.name == (
        "start > one > two > two > three"
    )
    assert [app.load(journal, "1", at=n).name for n in range(5)] == [
        "start",
        "start > one",
        "start > one > two",
        "start > one > two > two",
        "start > one > two > two > three",
    ]
    for at in (1, 3):
        again = journal.fork("1", at=at)
        assert (await app.resume(journal, again)).state.name == "start > one > two > two > three"


@port("LangGraph", "test_run_from_checkpoint_id_retains_previous_writes", lines=44)
async def test_a_fork_keeps_what_was_written_before(journal: Journal) -> None:
    class S(State):
        myval: Annotated[int, reducers.sum] = 0
        otherval: bool = False

    switch = False

    async def node_one(ctx: NodeContext[S]) -> Update:
        nonlocal switch
        switch = not switch
        return {"myval": 2 if switch else 1, "otherval": switch}

    app = graph(S).loop(node("node_one", node_one), until=lambda s: s.myval > 3).compile()
    ended = await app.run({"myval": 1}, journal=journal, execution_id="1")
    assert ended.state.myval == 4
    again = await app.resume(journal, journal.fork("1", at=1))
    assert (again.state.myval, again.state.otherval) == (5, True)
    assert [app.load(journal, "1", at=n).myval for n in range(3)] == [1, 3, 4]


@port("LangGraph", "test_graph_validation", lines=50)
async def test_a_graph_with_a_mistake_does_not_compile() -> None:
    class S(State):
        hello: str = ""

    agent = node("agent", writes())
    tools = node("tools", writes())
    assert graph(S).then(agent).compile()
    body = graph(S).then(agent).if_(lambda s: s.hello == "continue", then=tools)
    assert graph(S).loop(body, until=lambda s: s.hello == "exit").compile()
    with pytest.raises(GraphError, match="extra"):
        graph(S).then(agent).decision("route", routes=[(lambda s: True, "extra")]).then(tools).compile()
    typo = await graph(S).node("a", writes(hell="world")).compile().run({"hello": "there"})
    assert 'no such field (did you mean "hello"?)' in str(typo.error)

    async def world(ctx: NodeContext[S]) -> Update:
        return {"hello": "world"}

    both = graph(S).then(agent).parallel([node("b", world), node("c", world)])
    with pytest.raises(GraphError, match="hello"):
        both.compile()


@port("LangGraph", "test_invoke_two_processes_two_in_two_out_invalid", lines=12)
async def test_two_branches_write_one_field() -> None:
    class S(State):
        hello: str = ""

    branches = [node("one", writes(hello="world")), node("two", writes(hello="world"))]
    ended = await graph(S).parallel(branches).compile().run({"hello": "there"})
    assert ended.status is RunStatus.FAILED
    assert all(word in str(ended.error) for word in ("hello", "one", "two"))


@port("LangGraph", "test_get_stream_writer", lines=20)
async def test_a_node_sends_events() -> None:
    class S(State):
        foo: str = ""

    async def my_node(ctx: NodeContext[S]) -> Update:
        ctx.emit("custom!")
        return {"foo": ctx.state.foo}

    app = graph(S).node("my_node", my_node).compile()
    events = [event async for event in app.stream({"foo": "bar"}, modes=["events", "updates"])]
    assert [event.data.type for event in events if event.mode == "events"] == ["custom!"]
    assert [event.data for event in events if event.mode == "updates"] == [{"foo": "bar"}]


@port("LangGraph", "test_empty_invoke", lines=29)
async def test_a_run_without_input_starts_with_the_defaults() -> None:
    class S(State):
        x1: Annotated[list[str], reducers.concat] = []
        x2: Annotated[dict[str, int], reducers.merge] = {}

    app = (
        graph(S)
        .node("x1_1_node", writes(x1=["111"]))
        .node("x1_2_node", writes(x1=["222"]))
        .node("x2_1_node", writes(x2={"111": 111}))
        .node("x2_2_node", writes(x2={"222": 222}))
        .compile()
    )
    assert (await app.run()).state.x2 == {"111": 111, "222": 222}


@port("LangGraph", "test_state_graph_w_config_inherited_state_keys", lines=77)
async def test_an_agent_calls_tools_until_it_has_finished() -> None:
    class BaseState(State):
        input: str = ""
        outcome: str = ""

    class AgentState(BaseState):
        intermediate_steps: Annotated[list[tuple[str, str]], reducers.concat] = []

    responses = iter(["tool:search_api:query", "tool:search_api:another", "finish:answer"])

    async def agent(ctx: NodeContext[AgentState]) -> Update:
        return {"outcome": next(responses)}

    async def tools(ctx: NodeContext[AgentState]) -> Update:
        query = ctx.state.outcome.split(":")[2]
        return {"intermediate_steps": [(ctx.state.outcome, f"result for {query}")]}

    def is_finished(s: AgentState) -> bool:
        return s.outcome.startswith("finish")

    body = graph(AgentState).node("agent", agent).if_(lambda s: not is_finished(s), then=node("tools", tools))
    state = (await graph(AgentState).loop(body, until=is_finished).compile().run({"input": "weather in sf"})).state
    assert state.outcome.partition(":")[2] == "answer"
    assert state.intermediate_steps == [
        ("tool:search_api:query", "result for query"),
        ("tool:search_api:another", "result for another"),
    ]


@port("LangGraph", "test_invoke_two_processes_two_in_join_two_out", lines=26)
async def test_a_join_sees_the_results_of_both_branches() -> None:
    class S(State):
        input: int = 0
        inbox: Annotated[list[int], reducers.concat] = []
        output: list[int] = []

    async def add_one(ctx: NodeContext[S]) -> Update:
        return {"inbox": [ctx.state.input + 1]}

    async def add_10_each(ctx: NodeContext[S]) -> Update:
        return {"output": sorted(number + 10 for number in ctx.state.inbox)}

    app = graph(S).parallel([node("one", add_one), node("three", add_one)]).node("four", add_10_each).compile()
    ended = await asyncio.gather(*(app.run({"input": 2}) for _ in range(100)))
    assert [one.state.output for one in ended] == [[13, 13]] * 100


@port("LangGraph", "test_batch_update_as_input", lines=36)
async def test_a_fan_out_by_index() -> None:
    class S(State):
        foo: str = ""
        tasks: Annotated[list[int], reducers.concat] = []

    async def task(ctx: NodeContext[S]) -> Update:
        return {"tasks": [ctx.index]}

    app = (
        graph(S)
        .node("agent", writes(foo="agent"))
        .node("map", writes(foo="map"))
        .map("send", over=lambda s: range(3), node=node("task", task))
        .compile()
    )
    state = (await app.run({"foo": "input"})).state
    assert (state.foo, state.tasks) == ("map", [0, 1, 2])


@port("LangGraph", "test_command_with_static_breakpoints", lines=23)
async def test_a_run_pauses_before_a_node(journal: Journal) -> None:
    class S(State):
        foo: str = ""

    async def node1(ctx: NodeContext[S]) -> Update:
        return {"foo": ctx.state.foo + "|node-1"}

    async def node2(ctx: NodeContext[S]) -> Update:
        return {"foo": ctx.state.foo + "|node-2"}

    app = graph(S).node("node1", node1).node("node2", node2).compile(pause_before=["node1"])
    assert (await app.run({"foo": "abc"}, journal=journal, execution_id="1")).status is RunStatus.PAUSED
    assert (await app.resume(journal, "1")).state.foo == "abc|node-1|node-2"


@port("LangGraph", "test_nested_graph_interrupts_parallel", lines=45)
async def test_a_run_pauses_in_a_graph_beside_another_branch(journal: Journal) -> None:
    class S(State):
        my_key: Annotated[str, reducers.concat] = ""

    inner = graph(S).node("inner_1", writes(my_key="got here")).node("inner_2", writes(my_key=" and there"))
    app = (
        graph(S)
        .parallel({"inner": inner, "outer": node("outer_1", writes(my_key=" and parallel"))})
        .node("outer_2", writes(my_key=" and back again"))
        .compile(pause_before=["inner_2"])
    )
    paused = await app.run(journal=journal, execution_id="1")
    assert paused.status is RunStatus.PAUSED
    assert {record.node_id for record in journal.records("1")} == {"inner_1", "outer_1"}
    ended = await app.resume(journal, "1")
    assert ended.state.my_key == "got here and there and parallel and back again"
    assert len([record for record in journal.records("1") if record.node_id == "outer_1"]) == 1


@port("LangGraph", "test_doubly_nested_graph_interrupts", lines=47)
async def test_a_run_pauses_two_graphs_deep(journal: Journal) -> None:
    class S(State):
        my_key: str = ""

    def appends(text: str) -> Callable[[NodeContext[S]], Awaitable[Update]]:
        async def run(ctx: NodeContext[S]) -> Update:
            return {"my_key": ctx.state.my_key + text}

        return run

    async def parent_1(ctx: NodeContext[S]) -> Update:
        return {"my_key": "hi " + ctx.state.my_key}

    grandchild = (
        graph(S)
        .node("grandchild_1", appends(" here"))
        .node("grandchild_2", appends(" and there"))
        .compile("grandchild")
    )
    child = graph(S).subgraph("child_1", grandchild, output_mapper=lambda c, s: {"my_key": c.my_key}).compile("child")
    app = (
        graph(S)
        .node("parent_1", parent_1)
        .subgraph("child", child, output_mapper=lambda c, s: {"my_key": c.my_key})
        .node("parent_2", appends(" and back again"))
        .compile(pause_before=["child/child_1/grandchild_2"])
    )
    paused = await app.run({"my_key": "my value"}, journal=journal, execution_id="1")
    assert (paused.status, paused.state.my_key) == (RunStatus.PAUSED, "hi my value")
    ended = await app.resume(journal, "1")
    assert ended.state.my_key == "hi my value here and there and back again"


@port("LangGraph", "test_interrupt_multiple", lines=43)
async def test_an_answer_comes_with_an_update(journal: Journal) -> None:
    class S(State):
        my_key: Annotated[str, reducers.concat] = ""

    async def ask_twice(ctx: NodeContext[S]) -> Update:
        return {"my_key": f"{await ctx.ask('1')} {await ctx.ask('2')}"}

    app = graph(S).node("node", ask_twice).compile()
    ended = await app.run({"my_key": "DE"}, journal=journal, execution_id="1")
    answers = {ended.questions[0].id: "answer 1"}
    ended = await app.resume(journal, "1", answers=answers, update={"my_key": " foofoo "})
    assert [question.text for question in ended.questions] == ["2"]
    ended = await app.resume(journal, "1", answers={ended.questions[0].id: "answer 2"})
    assert ended.state.my_key == "DE foofoo answer 1 answer 2"


@port("LangGraph", "test_checkpoint_recovery", lines=33)
async def test_a_failed_run_is_continued_with_another_state(journal: Journal) -> None:
    class S(State):
        steps: Annotated[list[str], reducers.concat] = []
        attempt: int = 0

    async def failing_node(ctx: NodeContext[S]) -> Update:
        if ctx.state.attempt == 1:
            raise RuntimeError("Simulated failure")
        return {"steps": ["node1"]}

    app = graph(S).node("node1", failing_node).node("node2", writes(steps=["node2"])).compile()
    failed = await app.run({"steps": ["start"], "attempt": 1}, journal=journal, execution_id="1")
    assert "RuntimeError: Simulated failure" in str(failed.error)
    assert (app.load(journal, "1").steps, app.load(journal, "1").attempt) == (["start"], 1)
    state = (await app.resume(journal, "1", update={"attempt": 2})).state
    assert (state.steps, state.attempt) == (["start", "node1", "node2"], 2)


@port("LangGraph", "test_invoke_checkpoint_three", lines=52)
async def test_a_completed_run_takes_new_input(journal: Journal) -> None:
    class S(State):
        input: int = 0
        output: int = 0
        total: Annotated[int, reducers.sum] = 0

    async def one(ctx: NodeContext[S]) -> Update:
        output = ctx.state.total + ctx.state.input
        if output > 10:
            raise ValueError("Input is too large")
        return {"output": output, "total": output}

    app = graph(S).node("one", one).compile()
    ended = await app.start("1", {"input": 2}, journal=journal)
    assert (ended.state.output, ended.state.total) == (2, 2)
    ended = await app.start("1", {"input": 3}, journal=journal)
    assert (ended.state.output, ended.state.total) == (5, 7)
    failed = await app.start("1", {"input": 4}, journal=journal)
    assert (failed.status, failed.state.total) == (RunStatus.FAILED, 7)
    ended = await app.resume(journal, "1", update={"input": 2})
    assert (ended.state.output, ended.state.total) == (9, 16)
    other = await app.start("2", {"input": 5}, journal=journal)
    assert (other.state.output, app.load(journal, "1").total) == (5, 16)


@port("LangGraph", "test_multiple_subgraphs", lines=46)
async def test_a_node_calls_one_graph_twice_and_two_graphs(journal: Journal) -> None:
    class S(State):
        a: int = 0
        b: int = 0
        result: int = 0
        other: int = 0

    async def add_up(ctx: NodeContext[S]) -> Update:
        return {"result": ctx.state.a + ctx.state.b}

    async def product(ctx: NodeContext[S]) -> Update:
        return {"result": ctx.state.a * ctx.state.b}

    add = graph(S).node("add", add_up).compile("add")
    multiply = graph(S).node("multiply", product).compile("multiply")

    async def call_same(ctx: NodeContext[S]) -> Update:
        first = await ctx.run(add, {"a": ctx.state.a, "b": ctx.state.b})
        return {"result": (await ctx.run(add, {"a": first.result, "b": 10})).result}

    async def call_several(ctx: NodeContext[S]) -> Update:
        given = {"a": ctx.state.a, "b": ctx.state.b}
        return {"result": (await ctx.run(add, given)).result, "other": (await ctx.run(multiply, given)).result}

    same = await graph(S).node("call", call_same).compile().run({"a": 2, "b": 3}, journal=journal, execution_id="1")
    assert same.state.result == 15
    several = await graph(S).node("call", call_several).compile().run({"a": 2, "b": 3}, journal=journal)
    assert (several.state.result, several.state.other) == (5, 6)


@port("LangGraph", "test_subgraph_checkpoint_true_interrupt", lines=36)
async def test_the_question_of_a_called_graph_comes_out(journal: Journal) -> None:
    class Inner(State):
        bar: str = ""
        baz: str = ""

    class S(State):
        foo: str = ""

    async def ask(ctx: NodeContext[Inner]) -> Update:
        return {"baz": await ctx.ask("Provide baz value")}

    async def join(ctx: NodeContext[Inner]) -> Update:
        return {"bar": ctx.state.bar + ctx.state.baz}

    inner = graph(Inner).node("ask", ask).node("join", join).compile("inner")

    async def node_1(ctx: NodeContext[S]) -> Update:
        return {"foo": "hi! " + ctx.state.foo}

    async def node_2(ctx: NodeContext[S]) -> Update:
        return {"foo": (await ctx.run(inner, {"bar": ctx.state.foo})).bar}

    app = graph(S).node("node_1", node_1).node("node_2", node_2).compile()
    paused = await app.run({"foo": "foo"}, journal=journal, execution_id="1")
    (question,) = paused.questions
    assert (paused.state.foo, question.text) == ("hi! foo", "Provide baz value")
    assert (await app.resume(journal, "1", answers={question.id: "baz"})).state.foo == "hi! foobaz"
