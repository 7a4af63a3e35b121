"""Values that workflow functions pass to their steps and get from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from atomic.workflows import Flow, MemoryJournal, RunStatus, SqliteJournal, step, workflow


class Order(BaseModel):
    amount: int = Field(default=1, alias="Amount")


class Paid(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    amount: int = Field(alias="Amount")


class Hidden(BaseModel):
    note: str = Field(default="", exclude=True)


@step
async def pay(order: Order) -> Paid:
    return Paid(Amount=order.amount * 2)


@workflow
async def paying(flow: Flow, order: Order) -> int:
    return (await pay(order)).amount


async def test_the_fields_of_a_model_with_aliases_keep_their_values() -> None:
    done = await paying.run(Order(Amount=700), journal=MemoryJournal())
    assert (done.result, done.error) == (1400, None)


async def test_a_model_that_would_lose_a_field_is_refused() -> None:
    @step
    async def hide() -> Hidden:
        return Hidden(note="keep")

    @workflow
    async def hiding(flow: Flow) -> str:
        return (await hide()).note

    done = await hiding.run()
    assert done.status is RunStatus.FAILED
    assert "Hidden cannot be made again from its model_dump()" in str(done.error)


async def test_a_resume_gets_the_defaults_of_the_start() -> None:
    @workflow(name="charging")
    async def old(flow: Flow, customer: str, amount: int = 100) -> list[object]:
        return [customer, amount, await flow.ask("Sure?", id="sure")]

    @workflow(name="charging")
    async def new(flow: Flow, customer: str, amount: int = 999) -> list[object]:
        return [customer, amount, await flow.ask("Sure?", id="sure")]

    journal = MemoryJournal()
    await old.run("Ann", journal=journal, execution_id="run")
    done = await new.resume(journal, "run", answers={"sure": "yes"})
    assert done.result == ["Ann", 100, "yes"]


async def test_a_function_that_leaves_the_program_fails() -> None:
    @workflow
    async def leaving(flow: Flow) -> None:
        await flow.update()
        sys.exit(3)

    done = await leaving.run(journal=MemoryJournal())
    assert done.status is RunStatus.FAILED
    assert "SystemExit: 3" in str(done.error)


TAGS = """
import asyncio, sys
from pathlib import Path
from atomic.workflows import Flow, step, workflow

@step
async def tag(words: set[str]) -> int:
    Path("ran").write_text(Path("ran").read_text() + "tag ")
    return len(words)

@workflow
async def tagging(flow: Flow) -> int:
    count = await tag({"alpha", "beta", "gamma", "delta"})
    await flow.ask("Sure?", id="sure")
    return count

if sys.argv[1] == "run":
    done = asyncio.run(tagging.run(journal="runs.db", execution_id="run"))
else:
    done = asyncio.run(tagging.resume("runs.db", "run", answers={"sure": "yes"}))
print(done.status, done.result)
"""


@pytest.mark.parametrize("seeds", [("1", "2"), ("3", "4")])
def test_a_set_as_an_argument_is_the_same_in_each_process(tmp_path: Path, seeds: tuple[str, str]) -> None:
    (tmp_path / "tags.py").write_text(TAGS)
    (tmp_path / "ran").write_text("")
    said = [
        subprocess.run(
            [sys.executable, "tags.py", what],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        for what, seed in zip(("run", "resume"), seeds, strict=True)
    ]
    assert [done.stdout for done in said] == ["paused None\n", "completed 4\n"], said[1].stderr
    assert (tmp_path / "ran").read_text() == "tag "
    with SqliteJournal(tmp_path / "runs.db") as journal:
        assert [record.node_id for record in journal.records("run")] == ["tag", "sure"]
