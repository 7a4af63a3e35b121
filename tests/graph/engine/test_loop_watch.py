"""A node or a step that blocks the event loop is named in a warning, once.

The limit is one second, so these tests block for more; none needs a quiet machine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atomic.workflows import Flow, MemoryJournal, Node, RunResult, State, graph, node, step, workflow
from tests.support.waits import HANG

BLOCKED = 1.3  # seconds
Body = Callable[[Any], Awaitable[None]]


async def sleeps(ctx: Any) -> None:
    time.sleep(BLOCKED)  # noqa: ASYNC251  # that is the mistake


async def sleeps_then_waits(ctx: Any) -> None:
    time.sleep(BLOCKED)  # noqa: ASYNC251
    await asyncio.sleep(0.1)


async def computes(ctx: Any) -> None:
    end = time.thread_time() + BLOCKED
    while time.thread_time() < end:
        pass


async def waits(ctx: Any) -> None:
    await asyncio.sleep(2 * BLOCKED)


def texts(result: RunResult[Any]) -> list[str]:
    assert result.error is None
    return [text for event in result.warnings if "event loop" in (text := event.data["text"])]


@pytest.mark.parametrize("journal", [None, MemoryJournal()])
@pytest.mark.parametrize("body", [sleeps, sleeps_then_waits, computes])
async def test_the_node_that_blocks_the_loop_is_named_once(body: Body, journal: MemoryJournal | None) -> None:
    again = graph(State).node("slow", body)
    made = graph(State).loop(again, until=lambda state: False, max_iterations=2).compile()
    (text,) = texts(await made.run(journal=journal, execution_id=body.__name__))
    assert text.startswith("slow: blocked the event loop for ")
    assert f"{__file__}:" in text
    assert "asyncio.to_thread" in text


async def test_each_item_of_a_map_is_the_same_node() -> None:
    made = graph(State).map("all", lambda state: [1, 2], graph(State).node("one", sleeps)).compile()
    (text,) = texts(await made.run())
    assert text.startswith("one[0]: blocked")


async def test_the_branch_that_blocks_is_named_and_not_those_that_wait() -> None:
    async def late(ctx: Any) -> None:
        await asyncio.sleep(0.6)  # a beat comes meanwhile
        await sleeps_then_waits(ctx)

    branches: dict[str, Node[State]] = {"a": node("waiting", waits), "b": node("blocking", late)}
    (text,) = texts(await graph(State).parallel(branches).compile().run(journal=MemoryJournal()))
    assert text.startswith("blocking: blocked")


async def test_if_several_began_in_one_turn_each_of_them_is_named() -> None:
    branches: dict[str, Node[State]] = {"a": node("waiting", waits), "b": node("blocking", sleeps_then_waits)}
    (text,) = texts(await graph(State).parallel(branches).compile().run())
    assert text.startswith("waiting: one of waiting, blocking blocked")


async def test_an_async_tool_that_blocks_is_named_and_a_plain_one_runs_in_a_thread() -> None:
    def plain() -> None:
        time.sleep(BLOCKED)

    async def asynchronous() -> None:
        time.sleep(BLOCKED)  # noqa: ASYNC251

    (text,) = texts(await graph(State).tool("plain", plain).tool("bad", asynchronous).compile().run())
    assert text.startswith("bad: blocked")


async def test_a_step_of_a_function_that_blocks_is_named_and_one_that_waits_is_not() -> None:
    @step
    async def fetch(n: int) -> int:
        time.sleep(BLOCKED)  # noqa: ASYNC251
        return n

    @step
    async def fetch_more(n: int) -> int:
        time.sleep(BLOCKED)  # noqa: ASYNC251
        await asyncio.sleep(0.1)
        return n

    @step
    async def rest(n: int) -> int:
        await asyncio.sleep(2 * BLOCKED)
        return n

    @workflow
    async def load(flow: Flow) -> int:
        first = asyncio.create_task(rest(1))
        await asyncio.sleep(0)
        return await fetch(1) + await fetch(2) + await fetch_more(3) + await first

    named = [text.partition(":")[0] for text in texts(await load.run(journal=MemoryJournal(), execution_id="x"))]
    assert named == ["fetch", "fetch_more"]


async def test_a_stream_reports_the_warning_as_an_event() -> None:
    made = graph(State).node("slow", sleeps).compile()
    events = [item.data async for item in made.stream(modes="live")]
    assert [event.data["node"] for event in events if event.type == "warning"] == ["slow"]


STOPPED = """
import asyncio, sys
from atomic.workflows import State, graph

async def wait(ctx):
    print("waits", flush=True)
    await asyncio.get_running_loop().connect_read_pipe(lambda: Reader(ctx), sys.stdin)
    await ctx.deps.wait()

class Reader(asyncio.Protocol):
    def __init__(self, ctx):
        self.ctx = ctx

    def data_received(self, data):
        self.ctx.deps.set()

async def main():
    result = await graph(State).node("wait", wait).compile().run(deps=asyncio.Event())
    print(result.status, [event.data["text"] for event in result.warnings], flush=True)

asyncio.run(main())
"""


def test_a_process_that_was_stopped_while_its_steps_wait_blames_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "waits\n"
        time.sleep(0.6)  # at least one beat comes while it waits
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(BLOCKED)
        os.kill(child.pid, signal.SIGCONT)
        said, _ = child.communicate("go\n", timeout=HANG)
    finally:
        child.kill()
    assert said == "completed []\n"
