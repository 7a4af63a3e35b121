"""Atomic in memory through its public names: builder chains, `run` and `stream`."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from bodies import CHAIN, COMPILE, DEPTH, LONG_CHAIN, LONG_LOOP, LOOP, STREAM, expect, more
from measure import Metrics, cpu_us, cpu_us_async

from atomic.workflows import CompiledGraph, Node, NodeContext, State, graph, node, reducers


class Counter(State):
    """A number that every step raises."""

    n: int = 0


class Total(State):
    """A number to which every branch adds."""

    total: Annotated[int, reducers.sum] = 0


async def count(ctx: NodeContext[Counter]) -> dict[str, int]:
    return {"n": more(ctx.state.n)}


async def branch(ctx: NodeContext[Total]) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"total": 1}


def chain_graph(nodes: int) -> CompiledGraph[Counter]:
    builder = graph(Counter)
    for i in range(nodes):
        builder = builder.node(f"n{i}", count)
    return builder.compile(max_steps=0)


def loop_graph(steps: int) -> CompiledGraph[Counter]:
    body: Node[Counter] = node("count", count)
    return graph(Counter).loop([body], until=lambda s: s.n >= steps, max_iterations=0).compile(max_steps=0)


def run_counter(compiled: CompiledGraph[Counter], steps: int) -> float:
    async def run() -> None:
        expect((await compiled.run()).state.n, steps)

    return cpu_us_async(run, units=steps)


def run_total(compiled: CompiledGraph[Total], width: int) -> float:
    async def run() -> None:
        expect((await compiled.run()).state.total, width)

    return cpu_us_async(run, units=width)


def parallel(width: int) -> float:
    branches: list[Node[Total]] = [node(f"b{i}", branch) for i in range(width)]
    return run_total(graph(Total).parallel(branches, max_concurrency=0).compile(max_steps=0), width)


def mapped(width: int) -> float:
    body: Node[Total] = node("branch", branch)
    builder = graph(Total).map("map", over=lambda _: range(width), node=body, max_concurrency=0)
    return run_total(builder.compile(), width)


def stream() -> float:
    compiled = loop_graph(STREAM)

    async def run() -> None:
        events = 0
        async for _ in compiled.stream():
            events += 1
        expect(events, STREAM)

    return cpu_us_async(run, units=STREAM)


def nested_graph(depth: int) -> CompiledGraph[Counter]:
    if depth == 0:
        return chain_graph(1)
    return graph(Counter).subgraph("inner", nested_graph(depth - 1)).compile()


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {
    "chain": lambda _, __: {
        "chain": {"run": run_counter(chain_graph(CHAIN), CHAIN)},
        "long_chain": {"run": run_counter(chain_graph(LONG_CHAIN), LONG_CHAIN)},
    },
    "loop": lambda _, __: {"loop": {"run": run_counter(loop_graph(LOOP), LOOP)}},
    "long_loop": lambda _, __: {"long_loop": {"run": run_counter(loop_graph(LONG_LOOP), LONG_LOOP)}},
    "fan_out": lambda _, __: {
        "fan_out_100": {"parallel": parallel(100)},
        "fan_out_1000": {"parallel": parallel(1_000)},
        "map_1000": {"map": mapped(1_000)},
    },
    "stream": lambda _, __: {"stream": {"values": stream()}},
    "compile": lambda _, __: {"compile": {"graph": cpu_us(lambda: chain_graph(COMPILE), units=COMPILE)}},
    "nest": lambda _, __: {"nest": {"subgraph": run_counter(nested_graph(DEPTH), 1)}},
}
