"""DBOS's tests of its workflows, `tests/test_dbos.py`, with its expected values."""

import asyncio

from atomic.workflows import Failed, Flow, Journal, RunStatus, step, workflow
from tests.ports.source import port


@port("DBOS", "test_simple_workflow", lines=40)
async def test_a_run_with_a_known_id_is_not_run_again(journal: Journal) -> None:
    counts = {"workflow": 0, "transaction": 0, "step": 0}

    @step
    async def transaction(var2: str) -> str:
        counts["transaction"] += 1
        return var2 + "1"

    @step
    async def one_step(var: str) -> str:
        counts["step"] += 1
        return var

    @workflow
    async def simple(flow: Flow, var: str, var2: str) -> str:
        counts["workflow"] += 1
        return await transaction(var2) + await one_step(var)

    assert (await simple.run("bob", "bob", journal=journal)).result == "bob1bob"
    assert (await simple.run("alice", "alice", journal=journal, execution_id="1")).result == "alice1alice"
    assert (await simple.resume(journal, "1")).result == "alice1alice"
    assert counts == {"workflow": 2, "transaction": 2, "step": 2}


@port("DBOS", "test_child_workflow", lines=44)
async def test_children_in_turn_and_at_once(journal: Journal) -> None:
    @step
    async def transaction(var2: str) -> str:
        return var2 + "1"

    @step
    async def one_step(var: str) -> str:
        return var

    @workflow
    async def simple(flow: Flow, var: str, var2: str) -> str:
        return await transaction(var2) + await one_step(var)

    @workflow
    async def child(flow: Flow) -> str:
        return await flow.run(simple, "child1", "child1")

    @workflow
    async def children(flow: Flow) -> str:
        first = await flow.run(simple, "child1", "child1")
        others = [flow.run(simple, name, name) for name in ("child2a", "child2b")]
        return "".join([first, *await asyncio.gather(*others)])

    assert (await child.run(journal=journal)).result == "child11child1"
    assert (await children.run(journal=journal)).result == "child11child1child2a1child2achild2b1child2b"


@port("DBOS", "test_exception_workflow", lines=44)
async def test_an_end_with_a_failure_is_for_good(journal: Journal) -> None:
    counts = {"transaction": 0, "step": 0}

    @step
    async def exception_transaction(var: str) -> str:
        counts["transaction"] += 1
        raise ValueError(var)

    @step
    async def exception_step(var: str) -> str:
        counts["step"] += 1
        raise ValueError(var)

    @workflow
    async def failing(flow: Flow) -> Failed | None:
        errors: list[ValueError] = []
        for function in (exception_transaction, exception_step):
            try:
                await function("test error")
            except ValueError as error:
                errors.append(error)
        assert str(errors[0]) == str(errors[1])
        return Failed(str(errors[0]))

    for _ in range(2):
        ended = await failing.run(journal=journal, execution_id=f"run-{counts['step']}")
        assert str(ended.error) == "failing: test error"
    assert counts == {"transaction": 2, "step": 2}
    ended = await failing.resume(journal, "run-1")
    assert "test error" in str(ended.error)
    assert counts == {"transaction": 2, "step": 2}


@port("DBOS", "test_recovery_workflow", lines=42)
async def test_a_recovered_run_repeats_no_step(journal: Journal) -> None:
    counts = {"workflow": 0, "transaction": 0, "none": 0}

    @step
    async def transaction(var2: str) -> str:
        counts["transaction"] += 1
        return var2 + "1"

    @step
    async def return_none() -> None:
        counts["none"] += 1

    @workflow
    async def recovers(flow: Flow, var: str, var2: str) -> str:
        counts["workflow"] += 1
        result = await transaction(var2)
        assert await return_none() is None
        if counts["workflow"] == 1:
            raise SystemError("the process dies")
        return result + var

    assert (await recovers.run("bob", "bob", journal=journal, execution_id="1")).status is RunStatus.FAILED
    assert (await recovers.resume(journal, "1")).result == "bob1bob"
    assert counts == {"workflow": 2, "transaction": 1, "none": 1}
