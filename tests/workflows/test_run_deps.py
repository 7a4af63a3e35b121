"""Deps with a runtime for each run: each one that begins also ends, and a refused start has none."""

from __future__ import annotations

from typing import Any

import pytest

from atomic.workflows import (
    AtomicError,
    Flow,
    MemoryJournal,
    NodeContext,
    RunNotFoundError,
    RunStatus,
    State,
    graph,
    workflow,
)


class Deps:
    """Deps that count the runtimes of their runs."""

    def __init__(self) -> None:
        self.begun = 0
        self.ended: list[RunStatus | None] = []

    def require_usable(self) -> None:
        """Do nothing: they can always be used."""

    def begin_run(self, execution_id: str, journal: Any, closing: Any, warn: Any) -> Deps:
        self.begun += 1
        return self

    async def end_run(self, status: RunStatus | None) -> None:
        self.ended.append(status)


async def test_a_resume_of_a_function_that_its_new_type_refuses_leaves_no_runtime_open() -> None:
    @workflow(name="w")
    async def before(flow: Flow) -> str:
        return "text"

    @workflow(name="w")
    async def after(flow: Flow) -> int:
        return 1

    deps = Deps()
    journal = MemoryJournal()
    await before.run(journal=journal, execution_id="run", deps=deps)
    assert (deps.begun, deps.ended) == (1, [RunStatus.COMPLETED])
    with pytest.raises(AtomicError, match="does not fit its annotation"):
        await after.resume(journal, "run", deps=deps)
    assert deps.begun == len(deps.ended)
    assert (await before.resume(journal, "run", deps=deps)).result == "text"
    assert deps.begun == len(deps.ended) == 2


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_function_whose_result_cannot_be_recorded_leaves_no_run(is_kept: bool) -> None:
    @workflow
    async def bad(flow: Flow) -> list[int] | tuple[int, ...]:
        return [1]

    deps = Deps()
    journal = MemoryJournal() if is_kept else None
    with pytest.raises(AtomicError, match="cannot be recorded"):
        await bad.run(journal=journal, execution_id="run", deps=deps)
    assert deps.begun == 0
    if journal is not None:
        with pytest.raises(RunNotFoundError):
            journal.history("run")


async def test_a_resume_of_a_graph_that_its_new_state_refuses_leaves_no_runtime_open() -> None:
    class Before(State):
        n: int = 0

    class After(State):
        n: list[str] = []

    async def ask(ctx: NodeContext[Any]) -> dict[str, Any]:
        await ctx.ask("Go on?")
        return {}

    deps = Deps()
    journal = MemoryJournal()
    first = graph(Before).node("ask", ask).compile(name="g")
    await first.run({"n": 1}, journal=journal, execution_id="run", deps=deps)
    assert (deps.begun, deps.ended) == (1, [RunStatus.PAUSED])
    with pytest.raises(AtomicError, match="recorded by other code"):
        await graph(After).node("ask", ask).compile(name="g").resume(journal, "run", deps=deps)
    assert deps.begun == len(deps.ended)
    done = await first.resume(journal, "run", answers={"ask-1": "yes"}, deps=deps)
    assert done.status is RunStatus.COMPLETED
    assert deps.begun == len(deps.ended) == 2
