"""Rows for journals in tests: the same in every process."""

from __future__ import annotations

import random

import msgspec

from atomic.graph.engine.journal import (
    EndedBody,
    History,
    ResumedBody,
    Row,
    RowKind,
    StartBody,
    StartedBody,
    StepBody,
    encode_row,
)

BEGIN = 1_700_000_000.0
SNAPSHOT_AT = 12  # rows; the run "second" has a snapshot there
RUN_IDS = ("first", "second", "third")


def start_row(execution_id: str, **values: object) -> Row:
    return encode_row(RowKind.START, StartBody(execution_id, "reference", BEGIN, 1, {}, values))


def step_row(step: int | None, *, n: int = 1, text: str = "x", status: str = "completed") -> Row:
    update = msgspec.Raw(msgspec.msgpack.encode({"log": [text]}))
    body = StepBody("", f"node-{n}", n, status, update, 1, BEGIN + n, 0.5)
    return encode_row(RowKind.STEP, body, step=step)


def started_row(name: str) -> Row:
    return encode_row(RowKind.STARTED, StartedBody(name, 1, BEGIN))


def resumed_row(seconds: float = 0.0) -> Row:
    return encode_row(RowKind.RESUMED, ResumedBody(BEGIN + seconds))


def ended_row(status: str = "completed") -> Row:
    return encode_row(RowKind.ENDED, EndedBody(status, BEGIN + 1000))


def reference_rows(execution_id: str, steps: int = 24) -> list[Row]:
    """Return rows like those of an engine: mostly steps, and one row too large for a page."""
    generator = random.Random(execution_id)
    rows = [start_row(execution_id, prompt="do it")]
    for step in range(1, steps + 1):
        if step % 5 == 0:
            rows.append(resumed_row(step))
        size = 20_000 if step == 17 else generator.randrange(20, 900)
        rows.append(step_row(step, n=step, text=generator.randbytes(size // 2).hex()))
    return rows


def snapshot_of(execution_id: str) -> bytes:
    return random.Random(f"snapshot of {execution_id}").randbytes(12_000)


def position(history: History, original: list[Row], snapshot: bytes | None = None) -> int | None:
    """Count the original rows of a history; None if it is not a prefix of them."""
    if history.start != msgspec.msgpack.decode(original[0].body, type=StartBody):
        return None
    first = 1
    if history.snapshot is not None:
        if history.snapshot != snapshot:
            return None
        first = SNAPSHOT_AT
    end = first + len(history.rows)
    return end if history.rows == original[first:end] else None
