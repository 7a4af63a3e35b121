"""What a run of a graph results in, and nodes that end a run for good."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from atomic.workflows import (
    Blocked,
    Failed,
    MemoryJournal,
    NodeError,
    NodeResult,
    RunStatus,
    SqliteJournal,
    State,
    custom_tool_node,
    graph,
    node,
)
from tests.runs.small_runtime import Named, Runtime


class S(State):
    n: int = 0


async def one(ctx: Any) -> dict[str, Any]:
    return {"n": 1, "outputs": {"one": "first"}}


async def two(ctx: Any) -> dict[str, Any]:
    return {"n": ctx.state.n + 1, "outputs": {"two": ctx.state.n}}


async def poor(ctx: Any) -> Failed:
    return Failed("no money", {"missing": 3})


async def stuck(ctx: Any) -> Blocked:
    return Blocked("ask a person")


async def nothing(ctx: Any) -> None:
    """Return no output."""


async def test_the_result_is_the_last_output_also_in_a_loop() -> None:
    looped = graph(S).node("two", two).loop(graph(S).node("one", one), until=lambda state: True)
    assert (await looped.compile().run()).result == "first"
    again = graph(S).node("one", one).node("two", two).loop(graph(S).node("once", one), until=lambda state: True)
    assert (await again.compile().run()).result == "first"
    assert (await graph(S).node("zero", nothing).compile().run()).result is None


async def test_a_function_of_the_state_makes_the_result_again_after_a_resume(tmp_path: Path) -> None:
    made = graph(S).node("one", one).compile(name="g", result=lambda state: {"n": state.n})
    path = tmp_path / "runs.db"
    assert (await made.run(journal=path, execution_id="x")).result == {"n": 1}
    assert (await made.resume(path, "x")).result == {"n": 1}
    with SqliteJournal(path) as journal:
        assert len(journal.records("x")) == 1


async def test_a_result_that_cannot_be_made_fails_the_run_and_a_resume_makes_it() -> None:
    def broken(state: S) -> Any:
        raise ValueError("not yet")

    journal = MemoryJournal()
    failed = await graph(S).node("one", one).compile(name="g", result=broken).run(journal=journal, execution_id="x")
    assert (failed.status, str(failed.error)) == (RunStatus.FAILED, "result: result raised ValueError: not yet")
    repaired = await graph(S).node("one", one).compile(name="g", result=lambda s: s.n).resume(journal, "x")
    assert (repaired.status, repaired.result) == (RunStatus.COMPLETED, 1)
    assert len(journal.records("x")) == 1
    strange = await graph(S).node("one", one).compile(result=lambda state: object()).run()
    assert strange.status is RunStatus.FAILED
    assert "result" in str(strange.error)


@pytest.mark.parametrize(("made", "status", "value"), [(poor, "failed", {"missing": 3}), (stuck, "blocked", None)])
async def test_a_node_ends_the_run_for_good(made: Any, status: str, value: Any) -> None:
    journal = MemoryJournal()
    flow = graph(S).node("one", one).node("end", made, retry=3).node("two", two).compile(name="g")
    result = await flow.run(journal=journal, execution_id="x")
    assert (result.status, result.is_over, result.result) == (RunStatus(status), True, value)
    rows = len(journal.history("x").rows)
    again = await flow.resume(journal, "x")
    assert (again.status, str(again.error), again.is_over, again.result) == (
        result.status, str(result.error), True, value,
    )  # fmt: skip
    assert len(journal.history("x").rows) == rows
    assert [record.node_id for record in journal.records("x") if record.step is not None] == ["one"]


async def test_an_end_is_neither_retried_nor_caught_and_no_branch_goes_on() -> None:
    ran: list[str] = []
    finish = asyncio.Event()

    async def slow(ctx: Any) -> None:
        await finish.wait()
        ran.append("slow")

    async def note(ctx: Any) -> NodeResult:
        ran.append(ctx.node_id)
        return NodeResult(goto="later")

    async def fail(ctx: Any) -> Failed:
        ran.append("fail")
        finish.set()
        return Failed("enough")

    flow = (
        graph(S)
        .parallel({"bad": node("fail", fail, retry=3), "good": [node("slow", slow), node("next", note)]},
                  id="both", strategy="any")
        .node("later", one)
        .catch(node("catch", note))
        .compile(name="g")
    )  # fmt: skip
    result = await flow.run(journal=MemoryJournal())
    assert (result.status, result.is_over) == (RunStatus.FAILED, True)
    assert isinstance(result.error, NodeError)
    assert (result.error.reason, result.error.kind) == ("enough", "Failed")
    assert sorted(ran) == ["fail", "slow"]


async def test_the_result_may_end_a_run_as_blocked() -> None:
    result = await graph(S).node("one", one).compile(result=lambda state: Blocked("look", state.n)).run()
    assert (result.status, result.result, result.is_over) == (RunStatus.BLOCKED, 1, True)


@pytest.mark.parametrize("retry", [None, 3])
@pytest.mark.parametrize(
    ("end", "status"), [(Failed("red", 3), RunStatus.FAILED), (Blocked("ask a person"), RunStatus.BLOCKED)]
)
async def test_a_tool_may_end_the_run_for_good(end: Failed | Blocked, status: RunStatus, retry: int | None) -> None:
    calls: list[int] = []

    def check(state: S) -> Failed | Blocked:
        calls.append(state.n)
        return end

    made = graph(S).tool("check", check, output_schema=int, retry=retry).node("two", two).compile(name="g")
    journal = MemoryJournal()
    ended = await made.run(journal=journal, execution_id="x")
    assert (ended.status, ended.is_over, ended.result) == (status, True, end.value)
    assert str(ended.error) == f"check: {end.reason}"
    assert (ended.state.outputs, calls) == ({}, [0])
    assert (await made.resume(journal, "x")).status is status


async def test_a_tool_by_name_may_end_the_run_for_good() -> None:
    made = graph(S).then(custom_tool_node("check", tool="check")).compile()
    ended = await made.run(deps=Runtime(tools=Named({"check": lambda: Failed("red")})))
    assert (ended.status, str(ended.error)) == (RunStatus.FAILED, "check: red")
