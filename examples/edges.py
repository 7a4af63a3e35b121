"""The same engine with a graph as data: nodes and edges, a fork that joins, and a bounded cycle.

python examples/edges.py
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from atomic.workflows import END, Edge, GraphConfig, NodeContext, State, compile_graph, node, reducers


class Draft(State):
    text: str = ""
    remarks: Annotated[list[str], reducers.concat] = []
    round: Annotated[int, reducers.sum] = 0


async def write(ctx: NodeContext[Draft]) -> dict[str, Any]:
    answered = len(ctx.state.remarks)
    return {"text": f"draft {ctx.state.round + 1}, with {answered} remarks answered", "round": 1}


async def spelling(ctx: NodeContext[Draft]) -> dict[str, Any]:
    return {"remarks": [f"spelling of '{ctx.state.text[:7]}' is fine"]}


async def facts(ctx: NodeContext[Draft]) -> dict[str, Any]:
    return {"remarks": ["a fact is missing"] if ctx.state.round < 2 else []}


async def decide(ctx: NodeContext[Draft]) -> dict[str, Any]:
    return {"outputs": {"decide": "again" if ctx.state.round < 2 else "print"}}


config = GraphConfig(
    name="edges",
    state=Draft,
    start_node="write",
    max_iterations=5,  # a cycle needs a bound
    nodes=[node("write", write), node("spelling", spelling), node("facts", facts), node("decide", decide)],
    edges=[
        Edge("write", "spelling"),  # two edges without a condition: both at once,
        Edge("write", "facts"),
        Edge("spelling", "decide"),  # and they join here, where `decide` runs once
        Edge("facts", "decide"),
        Edge("decide", "write", condition=lambda s: s.outputs["decide"] == "again", label="again"),
        Edge("decide", END),
    ],
)


async def main() -> int:
    compiled = compile_graph(config)
    print(compiled.draw())
    result = await compiled.run()
    print(f"{result.status}: {result.state.text}")
    for remark in result.state.remarks:
        print(f"  - {remark}")
    return 0 if result.error is None else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
