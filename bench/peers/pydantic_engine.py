"""pydantic-graph 2: graphs of its `GraphBuilder`, with `auto_instrument=False`.

Version 2 keeps no journal, so it has no part in the durable rows; and no sub-graph node: nesting is a graph run
inside a step. Values go from step to step as inputs, its usual way and its quickest one. The loop is measured with
a decision node and with the `BaseNode` classes of its older style; the better number counts.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bodies import CHAIN, COMPILE, DEPTH, LONG_CHAIN, LOOP, STREAM, expect, more
from measure import Metrics, cpu_us, cpu_us_async
from pydantic_graph import BaseNode, End, GraphBuilder, GraphRunContext, StepContext, reduce_sum


@dataclass
class Counter:
    """The state of the graphs in the older style."""

    n: int = 0


async def count(ctx: StepContext[None, None, int]) -> int:
    return more(ctx.inputs)


def chain_graph(nodes: int, body: Any = count) -> Any:
    builder = GraphBuilder(name="chain", input_type=int, output_type=int, auto_instrument=False)
    steps = [builder.step(body, node_id=f"n{i}") for i in range(nodes)]
    for source, target in zip([builder.start_node, *steps], [*steps, builder.end_node], strict=True):
        builder.add_edge(source, target)
    return builder.build()


def chain(nodes: int) -> dict[str, float]:
    graph = chain_graph(nodes)

    async def run() -> None:
        expect(await graph.run(inputs=0), nodes)

    return {"steps": cpu_us_async(run, units=nodes)}


def loop_graph(steps: int) -> Any:
    builder = GraphBuilder(name="loop", input_type=int, output_type=int, auto_instrument=False)
    step = builder.step(count, node_id="count")
    again = builder.match(int, matches=lambda n: n < steps).to(step)
    end = builder.match(int).to(builder.end_node)
    builder.add_edge(builder.start_node, step)
    builder.add(builder.edge_from(step).to(builder.decision().branch(again).branch(end)))
    return builder.build()


def class_loop_graph(steps: int) -> Any:
    @dataclass
    class Count(BaseNode[Counter, None, int]):
        async def run(self, ctx: GraphRunContext[Counter, None]) -> "Count | End[int]":
            ctx.state.n = more(ctx.state.n)
            return self if ctx.state.n < steps else End(ctx.state.n)

    builder = GraphBuilder(name="loop", state_type=Counter, output_type=int, auto_instrument=False)

    async def start(ctx: StepContext[Counter, None, None]) -> Count:
        return Count()

    first = builder.step(start, node_id="start")
    builder.add(builder.node(Count), builder.edge_from(builder.start_node).to(first))
    return builder.build()


def loop() -> dict[str, float]:
    steps = loop_graph(LOOP)
    classes = class_loop_graph(LOOP)

    async def run() -> None:
        expect(await steps.run(inputs=0), LOOP)

    async def run_classes() -> None:
        expect(await classes.run(state=Counter()), LOOP)

    return {"steps": cpu_us_async(run, units=LOOP), "BaseNode": cpu_us_async(run_classes, units=LOOP)}


async def branch(ctx: StepContext[None, None, int]) -> int:
    await asyncio.sleep(0)
    return 1


def map_graph(width: int) -> Any:
    builder = GraphBuilder(name="map", output_type=int, auto_instrument=False)

    async def items(ctx: StepContext[None, None, None]) -> list[int]:
        return list(range(width))

    source = builder.step(items, node_id="items")
    body = builder.step(branch, node_id="branch")
    join = builder.join(reduce_sum, initial=0)
    builder.add(
        builder.edge_from(builder.start_node).to(source),
        builder.edge_from(source).map().to(body),
        builder.edge_from(body).to(join),
        builder.edge_from(join).to(builder.end_node),
    )
    return builder.build()


def broadcast_graph(width: int) -> Any:
    builder = GraphBuilder(name="broadcast", input_type=int, output_type=int, auto_instrument=False)
    bodies = [builder.step(branch, node_id=f"b{i}") for i in range(width)]
    join = builder.join(reduce_sum, initial=0)
    builder.add(
        builder.edge_from(builder.start_node).to(*bodies),
        builder.edge_from(*bodies).to(join),
        builder.edge_from(join).to(builder.end_node),
    )
    return builder.build()


def fan_out(width: int) -> dict[str, float]:
    def measured(graph: Any) -> float:
        async def run() -> None:
            expect(await graph.run(inputs=0), width)

        return cpu_us_async(run, units=width)

    return {"map": measured(map_graph(width)), "broadcast": measured(broadcast_graph(width))}


def stream() -> float:
    graph = loop_graph(STREAM)

    async def run() -> None:
        async with graph.iter(inputs=0) as graph_run:
            seen = 0
            async for event in graph_run:
                seen += isinstance(event, list) and event[0].node_id == "count"
        expect(seen, STREAM)

    return cpu_us_async(run, units=STREAM)


def nested_graph(depth: int) -> Any:
    if depth == 0:
        return chain_graph(1)
    inner = nested_graph(depth - 1)

    async def run_inner(ctx: StepContext[None, None, int]) -> int:
        return await inner.run(inputs=ctx.inputs)

    return chain_graph(1, run_inner)


def nest() -> float:
    graph = nested_graph(DEPTH)

    async def run() -> None:
        expect(await graph.run(inputs=0), 1)

    return cpu_us_async(run, units=1)


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {
    "chain": lambda _, __: {"chain": chain(CHAIN), "long_chain": chain(LONG_CHAIN)},
    "loop": lambda _, __: {"loop": loop()},
    "fan_out": lambda _, __: {"fan_out_100": fan_out(100), "fan_out_1000": fan_out(1_000)},
    "stream": lambda _, __: {"stream": {"iter": stream()}},
    "compile": lambda _, __: {"compile": {"GraphBuilder": cpu_us(lambda: chain_graph(COMPILE), units=COMPILE)}},
    "nest": lambda _, __: {"nest": {"in a step": nest()}},
}
