"""LangGraph: compiled `StateGraph` with a `TypedDict` state, each workload by its documented ways.

Chains, loops and streams are measured with `invoke` (sync nodes, its quicker way) and `ainvoke` (async nodes); the
better number counts. Durable steps use `SqliteSaver` with `synchronous=FULL` and `durability="sync"`, so that a step
is on the disk before the next one starts, as Atomic guarantees; once with the usual `operator.add` reducer and once
with its `DeltaChannel` (beta), which stores only the additions. A resume is `invoke(None)` for one more step; opening
the database and compiling the graph are left out.

Functions are `@entrypoint` with `@task`, in memory without a saver, else as above. Their resume is `invoke(None)` until
the function interrupts itself again. The cost of a task grows with the tasks before it, so functions have 1,000 steps
here, where those of others have 10,000; that is in LangGraph's favour.
"""

import asyncio
import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

from bodies import CHAIN, COMPILE, DEPTH, DURABLE, LONG_CHAIN, LOOP, RECORD, STREAM, expect, more
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt
from measure import Metrics, bytes_on_disk, cpu_us, cpu_us_async, once_us


class Counter(TypedDict):
    n: int


class Total(TypedDict):
    total: Annotated[int, operator.add]


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def add_all(log: list[str], additions: list[list[str]]) -> list[str]:
    return log + [line for addition in additions for line in addition]


class DeltaLog(TypedDict):
    log: Annotated[list[str], DeltaChannel(add_all)]


def count(state: Counter) -> Counter:
    return {"n": more(state["n"])}


async def acount(state: Counter) -> Counter:
    return {"n": more(state["n"])}


def chain_builder(nodes: int, body: Any) -> StateGraph:
    builder = StateGraph(Counter)
    names = [f"n{i}" for i in range(nodes)]
    for name in names:
        builder.add_node(name, body)
    for source, target in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(source, target)
    return builder


def loop_graph(steps: int, body: Any) -> Any:
    builder = StateGraph(Counter)
    builder.add_node("count", body)
    builder.add_edge(START, "count")
    builder.add_conditional_edges("count", lambda s: "count" if s["n"] < steps else END, ["count", END])
    return builder.compile()


def both_ways(build: Callable[[Any], Any], steps: int) -> dict[str, float]:
    config = {"recursion_limit": steps + 10}
    sync = build(count)
    asynchronous = build(acount)

    def run() -> None:
        expect(sync.invoke({"n": 0}, config)["n"], steps)

    async def arun() -> None:
        expect((await asynchronous.ainvoke({"n": 0}, config))["n"], steps)

    return {"invoke": cpu_us(run, units=steps), "ainvoke": cpu_us_async(arun, units=steps)}


def chain(nodes: int) -> dict[str, float]:
    return both_ways(lambda body: chain_builder(nodes, body).compile(), nodes)


async def branch(state: Any) -> Total:
    await asyncio.sleep(0)
    return {"total": 1}


def static_branches(width: int) -> Any:
    builder = StateGraph(Total)
    for i in range(width):
        builder.add_node(f"b{i}", branch)
        builder.add_edge(START, f"b{i}")
        builder.add_edge(f"b{i}", END)
    return builder.compile()


def sent_branches(width: int) -> Any:
    builder = StateGraph(Total)
    builder.add_node("branch", branch)
    builder.add_conditional_edges(START, lambda _: [Send("branch", {}) for _ in range(width)], ["branch"])
    builder.add_edge("branch", END)
    return builder.compile()


def fan_out(width: int) -> dict[str, float]:
    def measured(graph: Any) -> float:
        async def run() -> None:
            expect((await graph.ainvoke({"total": 0}))["total"], width)

        return cpu_us_async(run, units=width)

    return {"edges": measured(static_branches(width)), "Send": measured(sent_branches(width))}


def stream() -> dict[str, float]:
    config = {"recursion_limit": STREAM + 10}
    sync = loop_graph(STREAM, count)
    asynchronous = loop_graph(STREAM, acount)

    def run() -> None:
        expect(sum(1 for _ in sync.stream({"n": 0}, config, stream_mode="updates")), STREAM)

    async def arun() -> None:
        events = 0
        async for _ in asynchronous.astream({"n": 0}, config, stream_mode="updates"):
            events += 1
        expect(events, STREAM)

    return {"stream": cpu_us(run, units=STREAM), "astream": cpu_us_async(arun, units=STREAM)}


def nested_graph(body: Any) -> Any:
    graph = chain_builder(1, body).compile()
    for _ in range(DEPTH):
        graph = chain_builder(1, graph).compile()
    return graph


def nest() -> dict[str, float]:
    sync = nested_graph(count)
    asynchronous = nested_graph(acount)

    def run() -> None:
        expect(sync.invoke({"n": 0})["n"], 1)

    async def arun() -> None:
        expect((await asynchronous.ainvoke({"n": 0}))["n"], 1)

    return {"invoke": cpu_us(run, units=1), "ainvoke": cpu_us_async(arun, units=1)}


def growing(state: Any, saver: SqliteSaver) -> Any:
    builder = StateGraph(state)
    builder.add_node("grow", lambda _: {"log": [RECORD]})
    builder.add_edge(START, "grow")
    builder.add_conditional_edges("grow", lambda _: "grow", ["grow"])
    return builder.compile(checkpointer=saver)


def saver_at(path: Path) -> SqliteSaver:
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()  # sets WAL
    connection.execute("PRAGMA synchronous = FULL")
    return saver


def run_steps(graph: Any, steps: int) -> None:
    """Run a loop without an end. The limit stops it like a kill, after exactly `steps` steps."""
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps}
    try:
        graph.invoke({"log": []}, config, durability="sync")
    except GraphRecursionError:
        return
    raise AssertionError("the loop ended by itself")


def run_one_more(graph: Any, steps: int) -> None:
    config = {"configurable": {"thread_id": "1"}}
    result = graph.invoke(None, config, durability="sync", interrupt_after=["grow"])
    expect(len(result["log"]), steps + 1)


def durable_with(state: Any, path: Path) -> tuple[float, float, float]:
    """Return CPU µs per step, bytes of the closed database, and CPU ms until a resume has recorded a step."""
    saver = saver_at(path)
    with closing(saver.conn):
        step = once_us(lambda: run_steps(growing(state, saver), DURABLE), units=DURABLE)
    size = bytes_on_disk(path)
    resumes: list[float] = []
    for more_steps in range(3):
        saver = saver_at(path)
        with closing(saver.conn):
            graph = growing(state, saver)
            resumes.append(once_us(lambda: run_one_more(graph, DURABLE + more_steps), units=1_000))  # noqa: B023
    return step, size, min(resumes)


def durable(folder: Path, _: dict[str, Any]) -> Metrics:
    warm_up = saver_at(folder / "warm-up.db")
    with closing(warm_up.conn):
        run_steps(growing(Log, warm_up), DURABLE // 10)
    measured = {"operator.add": durable_with(Log, folder / "add.db")}
    measured["DeltaChannel"] = durable_with(DeltaLog, folder / "delta.db")
    names = ("durable", "bytes", "resume")
    return {name: {way: numbers[i] for way, numbers in measured.items()} for i, name in enumerate(names)}


@task
def count_task(n: int) -> int:
    return more(n)


@task
def grow_task(n: int) -> str:
    return RECORD


def looped(steps: int) -> int:
    n = 0
    while n < steps:
        n = count_task(n).result()
    return n


def grown(steps: int) -> int:
    return len([grow_task(n).result() for n in range(steps)])


def asking(steps: int) -> Any:
    looped(steps)
    return interrupt("Go on?")


def resumed_function(path: Path) -> float:
    """Return the CPU ms until a function of many steps interrupts itself again."""
    config = {"configurable": {"thread_id": "1"}}
    saver = saver_at(path)
    with closing(saver.conn):
        function = entrypoint(checkpointer=saver)(asking)
        function.invoke(DURABLE, config, durability="sync")
        return once_us(lambda: function.invoke(None, config, durability="sync"), units=1_000)


def functions(folder: Path, _: dict[str, Any]) -> Metrics:
    in_memory = entrypoint()(looped)
    saver = saver_at(folder / "function.db")
    with closing(saver.conn):
        durable = entrypoint(checkpointer=saver)(grown)

        def run(steps: int) -> None:
            expect(durable.invoke(steps, {"configurable": {"thread_id": str(steps)}}, durability="sync"), steps)

        run(DURABLE // 10)
        step = once_us(lambda: run(DURABLE), units=DURABLE)
    return {
        "function_step": {
            "@task, 1,000 steps": cpu_us(lambda: expect(in_memory.invoke(DURABLE), DURABLE), units=DURABLE)
        },
        "function_durable": {"@task": step},
        "function_resume": {"@task, 1,000 steps": resumed_function(folder / "resume.db")},
    }


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {
    "chain": lambda _, __: {"chain": chain(CHAIN), "long_chain": chain(LONG_CHAIN)},
    "loop": lambda _, __: {"loop": both_ways(lambda body: loop_graph(LOOP, body), LOOP)},
    "fan_out": lambda _, __: {"fan_out_100": fan_out(100), "fan_out_1000": fan_out(1_000)},
    "stream": lambda _, __: {"stream": stream()},
    "compile": lambda _, __: {
        "compile": {"StateGraph": cpu_us(lambda: chain_builder(COMPILE, count).compile(), units=COMPILE)}
    },
    "nest": lambda _, __: {"nest": nest()},
    "durable": durable,
    "function": functions,
}
