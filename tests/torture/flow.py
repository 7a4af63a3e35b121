"""Kill a workflow function at random moments until it is done, and count what breaks.

    python tests/torture/flow.py --runs 200 --seed 7

Like `run.py`, with a function: steps together, a loop, a question, retries, a timeout that
cancels a step, a child workflow, and, in every second run, a failure with compensations.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from atomic.graph.engine.journal import RowKind, StepBody, decode_body
from atomic.workflows import Flow, Retry, RunResult, RunStatus, SqliteJournal, current_step, step, workflow
from tests.torture.reference import Ledger
from tests.torture.run import RUN_ID, Case, main

ROUNDS = 3
_ledgers: list[Ledger] = []  # of this process


async def _witnessed(result: Any = None) -> Any:
    """Do the work of a step, between two lines of the ledger."""
    context = current_step()
    assert context is not None
    _ledgers[-1].write("start", context.step_id, context.attempt)
    await asyncio.sleep(random.uniform(0, 0.004))
    _ledgers[-1].write("done", context.step_id, context.attempt)
    return result


@step
async def work(what: str, n: int) -> int:
    return await _witnessed(n * 10)


@step(retry=Retry(0.001, attempts=20))
async def flaky(n: int) -> int:
    """Fail now and then; a kill takes attempts too."""
    context = current_step()
    assert context is not None
    await _witnessed()
    if context.attempt == 1:
        raise OSError("not yet")
    return n


@step
async def endless(n: int) -> None:
    await _witnessed()
    await asyncio.Event().wait()


@step
async def undo(what: str) -> None:
    await _witnessed()


@step
async def deploy(answer: str) -> str:
    await _witnessed()
    raise RuntimeError(f"not with {answer}")


@workflow
async def review(flow: Flow, n: int) -> int:
    first, second = await asyncio.gather(work("read", n), work("write", n))
    return first + second


@workflow
async def tortured(flow: Flow, seed: int) -> list[Any]:
    log: list[Any] = [await work("plan", seed)]
    flow.compensate(undo, "plan")

    async def build(n: int) -> int:
        made = await work("build", n)
        log.append(n)  # the order of arrival: a resume must repeat it
        return made + await work("test", made)

    results = await flow.map(build, range(8), max_concurrency=4)
    order = [n for n in log[1:] if isinstance(n, int)]
    flow.compensate(undo, "build")
    async with asyncio.TaskGroup() as group:
        retried = [group.create_task(flaky(n)) for n in range(3)]
        reviewed = group.create_task(flow.run(review, 4))
    for n in range(ROUNDS):
        results.append(await work("polish", n))
    try:
        async with asyncio.timeout(0.02):
            await endless(1)
    except TimeoutError:
        results.append(-1)
    answer = await flow.ask("Ship it?", id="ship", options=["yes", "no"])
    flow.compensate(undo, "ship")
    if seed % 2:
        await deploy(answer)
    return [order, *results, *(task.result() for task in retried), reviewed.result(), answer]


EXPECTED = [  # after the order in which the builds arrived
    *(n * 10 + n * 100 for n in range(8)), *(n * 10 for n in range(ROUNDS)), -1, 0, 1, 2, 80, "yes"
]  # fmt: skip


class FlowCase(Case):
    """One run of the function, and the facts that are visible from outside."""

    async def work(self) -> None:
        _ledgers.append(Ledger(self.ledger))
        with SqliteJournal(self.journal) as journal:
            if any(run.execution_id == RUN_ID for run in journal.list()):
                result = await tortured.resume(journal, RUN_ID)
            else:
                result = await tortured.run(self.seed, journal=journal, execution_id=RUN_ID)
            while result.status is RunStatus.PAUSED:
                result = await tortured.resume(journal, RUN_ID, answers={"ship": "yes"})
        problem = self._problem(result)
        if problem:
            raise RuntimeError(problem)

    def _problem(self, result: RunResult[Any]) -> str:
        """Return what is wrong with the end of a run."""
        if not self.seed % 2:
            is_right = result.status is RunStatus.COMPLETED and result.result == [self._order(), *EXPECTED]
            return "" if is_right else f"{result.status}: {result.error} {result.result}"
        is_right = result.status is RunStatus.FAILED and str(result.error) == "deploy: RuntimeError: not with yes"
        return "" if is_right else f"{result.status}: {result.error}"

    def _order(self) -> list[int]:
        """Return the builds in the order of their records."""
        with SqliteJournal(self.journal) as journal:
            rows = journal.history(RUN_ID).rows
        bodies = [decode_body(row, StepBody) for row in rows if row.kind == RowKind.STEP]
        texts = [body.call.text for body in bodies if body.call is not None and body.node_id == "work"]
        return [int(text.partition(", ")[2]) for text in texts if text.startswith("'build'")]

    def check_end(self) -> None:
        with SqliteJournal(self.journal) as journal:
            records = journal.records(RUN_ID)
        undone = [record.step_id.rpartition("#")[2] for record in records if record.node_id == "undo"]
        begun = [line.split()[1].partition(":")[2] for line in self.ledger.read_text().splitlines()]
        wanted = ["1", "2", "3"] if self.seed % 2 else []
        if undone != wanted or any(f"work#{n}" not in begun for n in range(1, 21)):
            self.tally.wrong += 1
            print(f"wrong records: {undone} {sorted(set(begun))}", file=sys.stderr)
        self.check_attempts()


if __name__ == "__main__":
    raise SystemExit(main(FlowCase))
