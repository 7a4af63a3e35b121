"""Burr (`apache-burr`, the maintained distribution; `burr` stopped at 0.42): each workload by its documented ways.

Chains, loops and streams are measured with `run` (sync actions) and `arun` (async actions); the better number counts.
The graph is built once and handed to each application. Parallel branches are `MapStates` over a ready-made
`RunnableGraph`, async, which Burr runs with `asyncio.gather`. Durable steps use `SQLitePersister` with WAL and
`synchronous=FULL`; a resume is the building of the application from it and one step, the opening of the database left
out. Burr has no sub-graph node: nesting is an application run inside an action.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from bodies import CHAIN, COMPILE, DEPTH, DURABLE, LONG_CHAIN, LOOP, RECORD, STREAM, expect, more
from burr.core import ApplicationBuilder, Condition, GraphBuilder, State, action
from burr.core.parallelism import MapStates, RunnableGraph
from burr.core.persistence import SQLitePersister
from measure import Metrics, bytes_on_disk, cpu_us, cpu_us_async, once_us


@action(reads=["n"], writes=["n"])
def count(state: State) -> State:
    return state.update(n=more(state["n"]))


@action(reads=["n"], writes=["n"])
async def acount(state: State) -> State:
    return state.update(n=more(state["n"]))


@action(reads=[], writes=[])
def done(state: State) -> State:
    return state


def chain_graph(nodes: int, body: Any) -> Any:
    names = [f"n{i}" for i in range(nodes)]
    builder = GraphBuilder().with_actions(**dict.fromkeys(names, body))
    return builder.with_transitions(*pairwise(names)).build()


def loop_graph(steps: int, body: Any) -> Any:
    unfinished = Condition.lmda(lambda s: s["n"] < steps, ["n"])
    builder = GraphBuilder().with_actions(count=body, done=done)
    return builder.with_transitions(("count", "count", unfinished), ("count", "done")).build()


def application(graph: Any, entry: str, n: int = 0) -> Any:
    return ApplicationBuilder().with_graph(graph).with_state(n=n).with_entrypoint(entry).build()


def both_ways(build: Callable[[Any], Any], entry: str, halt: dict[str, list[str]], steps: int) -> dict[str, float]:
    sync = build(count)
    asynchronous = build(acount)

    def run() -> None:
        expect(application(sync, entry).run(**halt)[2]["n"], steps)

    async def arun() -> None:
        expect((await application(asynchronous, entry).arun(**halt))[2]["n"], steps)

    return {"run": cpu_us(run, units=steps), "arun": cpu_us_async(arun, units=steps)}


def chain(nodes: int) -> dict[str, float]:
    return both_ways(lambda body: chain_graph(nodes, body), "n0", {"halt_after": [f"n{nodes - 1}"]}, nodes)


@action(reads=["total"], writes=["total"])
async def branch(state: State) -> State:
    await asyncio.sleep(0)
    return state.update(total=1)


class FanOut(MapStates):
    """`width` branches that all start from the same state."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        graph = GraphBuilder().with_actions(branch=branch).build()
        self.runnable = RunnableGraph(graph=graph, entrypoint="branch", halt_after=["branch"])

    def is_async(self) -> bool:
        return True

    def action(self, state: State, inputs: dict[str, Any]) -> Any:
        return self.runnable

    async def states(self, state: State, context: Any, inputs: dict[str, Any]) -> Any:
        for _ in range(self.width):
            yield state

    async def reduce(self, state: State, states: Any) -> State:
        total = 0
        async for result in states:
            total += result["total"]
        return state.update(total=total)

    @property
    def reads(self) -> list[str]:
        return ["total"]

    @property
    def writes(self) -> list[str]:
        return ["total"]


def fan_out(width: int) -> dict[str, float]:
    graph = GraphBuilder().with_actions(fan_out=FanOut(width)).build()

    async def run() -> None:
        app = ApplicationBuilder().with_graph(graph).with_state(total=0).with_entrypoint("fan_out").build()
        expect((await app.arun(halt_after=["fan_out"]))[2]["total"], width)

    return {"MapStates": cpu_us_async(run, units=width)}


def stream() -> dict[str, float]:
    sync = loop_graph(STREAM, count)
    asynchronous = loop_graph(STREAM, acount)

    def run() -> None:
        expect(sum(1 for _ in application(sync, "count").iterate(halt_before=["done"])), STREAM)

    async def arun() -> None:
        events = 0
        async for _ in application(asynchronous, "count").aiterate(halt_before=["done"]):
            events += 1
        expect(events, STREAM)

    return {"iterate": cpu_us(run, units=STREAM), "aiterate": cpu_us_async(arun, units=STREAM)}


def nested(depth: int) -> Any:
    """Return an action that runs an application with the next inner action."""
    if depth == 0:
        return count
    graph = GraphBuilder().with_actions(inner=nested(depth - 1)).build()

    @action(reads=["n"], writes=["n"])
    def outer(state: State) -> State:
        return state.update(n=application(graph, "inner", state["n"]).run(halt_after=["inner"])[2]["n"])

    return outer


def nest() -> float:
    graph = GraphBuilder().with_actions(outer=nested(DEPTH)).build()

    def run() -> None:
        expect(application(graph, "outer").run(halt_after=["outer"])[2]["n"], 1)

    return cpu_us(run, units=1)


@action(reads=["log"], writes=["log"])
def grow(state: State) -> State:
    return state.update(log=[*state["log"], RECORD])  # `append` copies the whole list deeply


GROWING = GraphBuilder().with_actions(grow=grow).with_transitions(("grow", "grow")).build()


def persister_at(path: Path) -> SQLitePersister:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    persister = SQLitePersister(str(path), connection=connection)
    persister.initialize()
    return persister


def resumed(persister: SQLitePersister) -> Any:
    return (
        ApplicationBuilder()
        .with_graph(GROWING)
        .with_identifiers(app_id="run")
        .initialize_from(persister, resume_at_next_action=True, default_state={"log": []}, default_entrypoint="grow")
        .with_state_persister(persister)
        .build()
    )


def run_steps(persister: SQLitePersister, steps: int) -> None:
    app = resumed(persister)
    for _ in range(steps):
        app.step()


def run_one_more(persister: SQLitePersister, steps: int) -> None:
    expect(len(resumed(persister).step()[2]["log"]), steps + 1)


def durable(folder: Path, _: dict[str, Any]) -> Metrics:
    warm_up = persister_at(folder / "warm-up.db")
    run_steps(warm_up, DURABLE // 10)
    warm_up.cleanup()
    path = folder / "burr.db"
    persister = persister_at(path)
    step = once_us(lambda: run_steps(persister, DURABLE), units=DURABLE)
    persister.cleanup()
    size = bytes_on_disk(path)
    resumes: list[float] = []
    for more_steps in range(3):
        again = persister_at(path)
        resumes.append(once_us(lambda: run_one_more(again, DURABLE + more_steps), units=1_000))  # noqa: B023
        again.cleanup()
    way = "SQLitePersister"
    return {"durable": {way: step}, "bytes": {way: size}, "resume": {way: min(resumes)}}


def loop() -> dict[str, float]:
    return both_ways(lambda body: loop_graph(LOOP, body), "count", {"halt_before": ["done"]}, LOOP)


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {
    "chain": lambda _, __: {"chain": chain(CHAIN), "long_chain": chain(LONG_CHAIN)},
    "loop": lambda _, __: {"loop": loop()},
    "fan_out": lambda _, __: {"fan_out_100": fan_out(100), "fan_out_1000": fan_out(1_000)},
    "stream": lambda _, __: {"stream": stream()},
    "compile": lambda _, __: {"compile": {"GraphBuilder": cpu_us(lambda: chain_graph(COMPILE, count), units=COMPILE)}},
    "nest": lambda _, __: {"nest": {"in an action": nest()}},
    "durable": durable,
}
