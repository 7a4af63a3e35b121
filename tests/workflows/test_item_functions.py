"""Functions of nodes inside a map or a task loop that take the item after the state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from atomic.tasks import Task, TaskList
from atomic.workflows import (
    END,
    Edge,
    GraphConfig,
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    State,
    SubagentRequest,
    agent_node,
    ask_user_node,
    compile_graph,
    criteria_loop_node,
    custom_tool_node,
    graph,
    node,
    parallel_node,
    parallel_subagent_node,
    review_cycle,
    skill_node,
    subagent_node,
    subgraph_node,
    task_loop_node,
    tool_node,
    wait_node,
)
from tests.graph.engine.small import RUN, S, ended, failed, say, within, write
from tests.runs.small_runtime import Entity, Named, Runtime


class Files(State):
    files: list[str] = ["a.py", "b.py"]
    words: str = "summarise"


async def mapped(worker: Any, deps: Any = None, **options: Any) -> list[Any]:
    """Return the outputs of a map over two files whose worker is this node."""
    return (
        await ended(graph(Files).map("m", lambda s: s.files, worker, **options).compile(), deps=deps)
    ).state.outputs["m"]


# Agents


async def test_one_agent_for_each_file_is_one_line() -> None:
    runtime = Runtime(says=lambda prompt: prompt.upper())
    flow = graph(Files).map("all", lambda s: s.files, agent_node("one", lambda state, file: f"{state.words} {file}"))
    assert (await ended(flow.compile(), deps=runtime)).state.outputs["all"] == ["SUMMARISE A.PY", "SUMMARISE B.PY"]
    assert [turn.prompt for turn in runtime.turns] == ["summarise a.py", "summarise b.py"]


async def test_the_answer_of_an_agent_is_mapped_with_its_item() -> None:
    worker: Node[Files, Any] = agent_node(
        "one", "go", output_mapper=lambda text, state, file: {"outputs": {"one": f"{file}: {text}"}}
    )
    assert await mapped(worker, Runtime(says="done")) == ["a.py: done", "b.py: done"]


async def test_a_subagent_takes_the_item_in_its_task_prompt_and_mapper() -> None:
    runtime = Runtime()
    runtime.entities.add("agent", Entity("reader"))
    worker: Node[Files, Any] = subagent_node(
        "one",
        agent="reader",
        task=lambda state, file: f"read {file}",
        system_prompt=lambda state, file: f"You know {file}.",
        output_mapper=lambda text, state, file: {"outputs": {"one": file}},
    )
    assert await mapped(worker, runtime) == ["a.py", "b.py"]
    requests = runtime.bridge.requests
    assert [(one.task, one.system_prompt) for one in requests] == [
        ("read a.py", "You know a.py."),
        ("read b.py", "You know b.py."),
    ]


async def test_the_work_that_an_isolated_subagent_continues_may_depend_on_the_item() -> None:
    from atomic.workspaces import Work

    runtime = Runtime()
    runtime.entities.add("agent", Entity("fixer"))
    works = {name: Work(name, "fix it", 1, "1" * 40, "2" * 40) for name in ("a.py", "b.py")}
    worker: Node[Files, Any] = subagent_node("one", agent="fixer", task="fix", isolate=lambda state, file: works[file])
    await mapped(worker, runtime)
    assert [cast("Work", one.isolate).name for one in runtime.bridge.requests] == ["a.py", "b.py"]


async def test_parallel_subagents_are_chosen_by_the_item() -> None:
    runtime = Runtime()
    runtime.entities.add("agent", Entity("reader"))
    worker: Node[Files, Any] = parallel_subagent_node(
        "one",
        agents=lambda state, file: [SubagentRequest("reader", f"read {file}")],
        merge=lambda results, state, file: {"outputs": {"one": (file, len(results))}},
    )
    assert await mapped(worker, runtime) == [["a.py", 1], ["b.py", 1]]


def shout(text: str) -> str:
    return text.upper()


async def test_a_skill_and_a_tool_take_the_item_in_their_arguments() -> None:
    runtime = Runtime(says=lambda prompt: prompt)
    runtime.entities.add("skill", Entity("lint", "Lint $ARGUMENTS."))
    assert await mapped(skill_node("lint", id="one", args=lambda state, file: file), runtime) == [
        "Lint a.py.",
        "Lint b.py.",
    ]
    runtime.tools = Named({"shout": shout})
    worker: Node[Files, Any] = custom_tool_node("one", tool="shout", args=lambda state, file: {"text": file})
    assert await mapped(worker, runtime) == ["A.PY", "B.PY"]


# Nodes without an agent


def size_of(text: str) -> int:
    return len(text)


def same(n: int) -> int:
    return n


async def test_a_tool_takes_the_item_in_its_arguments_and_its_mapper() -> None:
    worker: Node[Files, Any] = tool_node(
        "one",
        size_of,
        args=lambda state, file: {"text": file * 2},
        output_mapper=lambda size, state, file: {"outputs": {"one": f"{file}={size}"}},
    )
    assert await mapped(worker) == ["a.py=8", "b.py=8"]


async def test_a_question_and_an_approval_name_the_item() -> None:
    questions: Node[Files, Any] = ask_user_node(
        "one", lambda state, file: f"Delete {file}?", output_mapper=lambda a, s, f: {"outputs": {"one": (f, a)}}
    )
    journal = MemoryJournal()
    flow = graph(Files).map("m", lambda s: s.files, questions).compile()
    result = await within(flow.run(journal=journal, execution_id=RUN))
    assert [question.text for question in result.questions] == ["Delete a.py?", "Delete b.py?"]
    result = await within(flow.resume(journal, RUN, answers={"one[0]": "no", "one[1]": "yes"}))
    assert result.state.outputs["m"] == [["a.py", "no"], ["b.py", "yes"]]

    waits: Node[Files, Any] = wait_node(
        "one", lambda state, file: f"Look at {file}", auto_approve=lambda state, file: file == "a.py"
    )
    result = await within(graph(Files).map("m", lambda s: s.files, waits).compile().run())
    assert [question.text for question in result.questions] == ["Look at b.py"]


async def test_conditions_ask_about_the_item() -> None:
    inner = graph(S).if_(lambda s, n: n % 2 == 0, then=write("even", log=["even"]), else_=write("odd", log=["odd"]))
    result = await ended(graph(S).map("m", lambda s: [1, 2, 3], inner).compile())
    assert result.state.log == ["odd", "even", "odd"]

    routes = (
        graph(S)
        .decision("d", [(lambda s, n: n > 1, "big")], fallback=END)
        .node("big", say("big").run or cast("Any", None))
    )
    result = await ended(graph(S).map("m", lambda s: [1, 2, 3], routes).compile())
    assert result.state.log == ["big", "big"]


async def count(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"total": 1}


async def test_a_loop_ends_by_the_item() -> None:
    loop = graph(S).loop(graph(S).node("count", count), until=lambda s, n: s.total >= n)
    assert (await ended(graph(S).map("m", lambda s: [2, 3], loop).compile())).state.total == 5
    loop = criteria_loop_node("c", task_nodes=node("count", count), criteria=lambda s, n: s.total >= n)
    assert (await ended(graph(S).map("m", lambda s: [2, 3], loop).compile())).state.total == 5
    cycle = review_cycle(
        S, executor=say("x"), fixer=say("fix"), reviewer=node("count", count), until=lambda s, n: s.total >= n
    )
    assert (await ended(graph(S).map("m", lambda s: [2, 3], cycle).compile())).state.total == 5


async def test_a_subgraph_gets_the_item_by_its_input_mapper() -> None:
    child = graph(S).node("shout", say("child").run or cast("Any", None)).compile()
    worker: Node[Files, Any] = subgraph_node(
        "one",
        child,
        input_mapper=lambda state, file: {"text": file},
        output_mapper=lambda child, state, file: {"outputs": {"one": (child.text, file)}},
    )
    assert await mapped(worker) == [["a.py", "a.py"], ["b.py", "b.py"]]


async def test_a_map_inside_a_map_and_its_limit_depend_on_the_outer_item() -> None:
    inner = graph(S).map("inner", lambda s, n: range(n), write("leaf", total=1), max_concurrency=lambda s, n: n)
    assert (await ended(graph(S).map("outer", lambda s: [2, 3], inner).compile())).state.total == 5


async def test_functions_of_a_task_loop_get_the_task(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    TaskList([Task("1", "first"), Task("2", "second")]).write(str(path))
    runtime = Runtime(says=lambda prompt: prompt)
    work: Node[S, Any] = agent_node(
        "work", lambda state, task: task.title, output_mapper=lambda a, s, task: {"log": [f"{task.id} {a}"]}
    )
    flow = graph(S).then(task_loop_node("loop", tasks_path=str(path), task_nodes=work)).compile()
    assert (await ended(flow, deps=runtime)).state.log == ["1 first", "2 second"]


async def test_a_function_that_fails_for_one_item_fails_that_item() -> None:
    worker: Node[S, Any] = tool_node("one", same, args=lambda state, n: {"n": 1 // n})
    flow = graph(S).map("m", lambda s: [1, 0], worker).compile()
    assert await failed(flow, "one[1]") == "one[1]: ZeroDivisionError: integer division or modulo by zero"


# How many at once


async def test_how_many_items_and_branches_run_at_once_may_depend_on_the_state() -> None:
    running: set[str] = set()
    most = 0

    async def work(ctx: NodeContext[S]) -> None:
        nonlocal most
        running.add(ctx.node_id)
        most = max(most, len(running))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.discard(ctx.node_id)

    flow = graph(S).map("m", lambda s: range(6), node("work", work), max_concurrency=lambda s: s.count).compile()
    await ended(flow, {"count": 2})
    assert most == 2
    most = 0
    branches = [node(f"b{number}", work) for number in range(4)]
    await ended(graph(S).then(parallel_node("p", branches, max_concurrency=lambda s: s.count)).compile(), {"count": 3})
    assert most == 3


@pytest.mark.parametrize("limit", [-1, "two", None, True])
async def test_a_wrong_limit_of_a_function_fails_the_node(limit: Any) -> None:
    flow = graph(S).map("m", lambda s: [1], say("a"), max_concurrency=lambda s: limit).compile()
    text = await failed(flow, "m")
    assert text == f"m: max_concurrency returned {limit!r}; return a whole number, or 0 for no limit"


# Signatures


def problems_of(build: Callable[[], Any]) -> list[str]:
    with pytest.raises(GraphError) as caught:
        build()
    return [str(problem) for problem in caught.value.problems]


OUTSIDE = "takes an item, but the node is not inside a map or task loop: take (state) only"
NODES: list[tuple[Any, str]] = [
    (agent_node("n", lambda state, item: ""), f"n: prompt {OUTSIDE}"),
    (tool_node("n", str, args=lambda state, item: {}), f"n: args {OUTSIDE}"),
    (tool_node("n", str, output_mapper=lambda result, state, item: None), f"n: output_mapper {OUTSIDE}"),
    (ask_user_node("n", lambda state, item: ""), f"n: question {OUTSIDE}"),
    (wait_node("n", "go", input_mapper=lambda answer, state, item: None), f"n: input_mapper {OUTSIDE}"),
    (graph(S).if_(lambda state, item: True, then=say("n")), f"if-1: condition 1 {OUTSIDE}"),
    (graph(S).loop(say("n"), until=lambda state, item: True), f"loop-1: until {OUTSIDE}"),
    (graph(S).map("n", lambda state, item: [], say("a")), f"n: over {OUTSIDE}"),
]


@pytest.mark.parametrize(("part", "problem"), NODES)
def test_an_item_outside_of_a_map_is_a_problem_of_the_graph(part: Any, problem: str) -> None:
    assert problems_of(lambda: graph(S).then(part).compile()) == [problem]


def test_an_edge_has_no_item() -> None:
    edge = Edge("a", "b", condition=lambda state, item: True)
    config = GraphConfig(start_node="a", nodes=[say("a"), say("b")], edges=[edge, ("a", END)], state=S)
    assert problems_of(lambda: compile_graph(config)) == [
        "a: edge to 'b': condition takes an item, but no map is around an edge"
    ]


def two(state: Any, file: Any, more: Any) -> str:
    return ""


def none() -> str:
    return ""


async def waits(state: Any) -> str:
    return ""


def mapper(result: Any) -> None:
    return None


IMPOSSIBLE: list[tuple[Node[Any], str]] = [
    (
        agent_node("n", cast("Any", two)),
        "n: prompt takes (state) or (state, item), not (state: 'Any', file: 'Any', more: 'Any')",
    ),
    (agent_node("n", cast("Any", none)), "n: prompt takes (state) or (state, item), not ()"),
    (agent_node("n", cast("Any", waits)), "n: prompt must be a plain function; it is async"),
    (
        tool_node("n", str, output_mapper=cast("Any", mapper)),
        "n: output_mapper takes (result, state) or (result, state, item), not (result: 'Any')",
    ),
]


@pytest.mark.parametrize(("part", "problem"), IMPOSSIBLE)
def test_an_impossible_signature_is_a_problem_of_the_graph(part: Node[Any], problem: str) -> None:
    assert problems_of(lambda: graph(S).map("m", lambda s: [1], part).compile()) == [problem]


async def test_a_default_of_a_second_parameter_is_kept() -> None:
    workers: list[Node[S, Any]] = [tool_node(f"t{n}", same, args=lambda state, n=n: {"n": n}) for n in (1, 2)]
    result = await ended(graph(S).map("m", lambda s: ["x"], workers).compile())
    assert result.state.outputs["m"] == [2]
