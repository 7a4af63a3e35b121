"""The bounds: the same work written by hand with plain asyncio and raw SQLite, without any engine."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from bodies import CHAIN, COMPILE, DEPTH, DURABLE, LONG_CHAIN, LONG_LOOP, LOOP, RECORD, STREAM, expect, more
from measure import Metrics, bytes_on_disk, cpu_us, cpu_us_async, once_us_async

Pragmas = dict[str, Any]
State = dict[str, int]
Body = Callable[[State], Awaitable[State]]

DEFAULT_PRAGMAS: Pragmas = {"page_size": 4096, "journal_mode": "wal", "synchronous": 2}


async def count(state: State) -> State:
    return {"n": more(state["n"])}


def chain(nodes: int) -> float:
    bodies: list[Body] = [count] * nodes

    async def run() -> None:
        state: State = {"n": 0}
        for body in bodies:
            state.update(await body(state))
        expect(state["n"], nodes)

    return cpu_us_async(run, units=nodes)


def loop(steps: int) -> float:
    async def run() -> None:
        state: State = {"n": 0}
        while state["n"] < steps:
            state.update(await count(state))
        expect(state["n"], steps)

    return cpu_us_async(run, units=steps)


async def branch() -> State:
    await asyncio.sleep(0)
    return {"total": 1}


async def in_task_group(width: int) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch()) for _ in range(width)]
    expect(sum(task.result()["total"] for task in tasks), width)


async def in_gather(width: int) -> None:
    updates = await asyncio.gather(*(branch() for _ in range(width)))
    expect(sum(update["total"] for update in updates), width)


def fan_out(width: int) -> dict[str, float]:
    return {
        "TaskGroup": cpu_us_async(lambda: in_task_group(width), units=width),
        "gather": cpu_us_async(lambda: in_gather(width), units=width),
    }


async def numbers(steps: int) -> AsyncIterator[tuple[str, State]]:
    state: State = {"n": 0}
    while state["n"] < steps:
        state.update(await count(state))
        yield "count", state


def stream() -> float:
    async def run() -> None:
        events = 0
        async for _ in numbers(STREAM):
            events += 1
        expect(events, STREAM)

    return cpu_us_async(run, units=STREAM)


def compile_chain() -> float:
    """Build a list of names and functions and a table of successors."""

    def run() -> None:
        nodes: dict[str, Body] = {f"n{i}": count for i in range(COMPILE)}
        names = list(nodes)
        expect(len(dict(pairwise(names))), COMPILE - 1)

    return cpu_us(run, units=COMPILE)


async def nested(depth: int, state: State) -> State:
    if depth == 0:
        return await count(state)
    inner = dict(state)
    inner.update(await nested(depth - 1, inner))
    return inner


def nest() -> float:
    async def run() -> None:
        expect((await nested(DEPTH, {"n": 0}))["n"], 1)

    return cpu_us_async(run, units=1)


def connect(path: Path, pragmas: Pragmas) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for name, value in (pragmas or DEFAULT_PRAGMAS).items():
        connection.execute(f"PRAGMA {name} = {value}")
    connection.execute("CREATE TABLE record (seq INTEGER PRIMARY KEY, data BLOB NOT NULL)")
    return connection


async def write(connection: sqlite3.Connection, steps: int) -> None:
    """Run steps that call a body, add to the state and insert one row in autocommit."""
    log: list[str] = []
    for seq in range(steps):
        update = await grow()
        log.extend(update["log"])
        data = msgspec.msgpack.encode(update)
        connection.execute("INSERT INTO record (seq, data) VALUES (?, ?)", (seq, data))
    expect(len(log), steps)


async def grow() -> dict[str, list[str]]:
    return {"log": [RECORD]}


def durable(folder: Path, pragmas: Pragmas) -> Metrics:
    with closing(connect(folder / "warm-up.db", pragmas)) as connection:
        asyncio.run(write(connection, DURABLE // 10))
    path = folder / "bound.db"
    with closing(connect(path, pragmas)) as connection:
        step = once_us_async(lambda: write(connection, DURABLE), units=DURABLE)
    return {"durable": {"INSERT": step}, "bytes": {"INSERT": bytes_on_disk(path)}}


JOBS: dict[str, Callable[[Path, Pragmas], Metrics]] = {
    "chain": lambda _, __: {"chain": {"asyncio": chain(CHAIN)}, "long_chain": {"asyncio": chain(LONG_CHAIN)}},
    "loop": lambda _, __: {"loop": {"asyncio": loop(LOOP)}},
    "long_loop": lambda _, __: {"long_loop": {"asyncio": loop(LONG_LOOP)}},
    "fan_out": lambda _, __: {"fan_out_100": fan_out(100), "fan_out_1000": fan_out(1_000)},
    "stream": lambda _, __: {"stream": {"asyncio": stream()}},
    "compile": lambda _, __: {"compile": {"dict": compile_chain()}},
    "nest": lambda _, __: {"nest": {"asyncio": nest()}},
    "durable": durable,
}
