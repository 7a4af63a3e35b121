"""The chain of checksums: each row has one that continues the one before.

A flipped bit, a missing row, or a row that was moved or taken from another run breaks
the chain. The first checksum is seeded with the run's id, so runs cannot be exchanged
either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from atomic.graph.engine.journal import Row
from atomic.sessions.errors import BrokenChainError

# The keys of a run are one contiguous range: its number, then 40 bits for the row. So
# no second index is needed, and 2^40 rows last 34 years at one row per millisecond.
RUN_BITS = 40

_pack = struct.Struct("<qqq").pack
_NO_STEP = -(2**63)


class End(NamedTuple):
    """The number and the checksum of the last row of a run."""

    seq: int
    crc: int


class Snapshot(NamedTuple):
    """A folded state and the row it follows; `chain` is the checksum of that row."""

    seq: int
    step: int
    chain: int
    body: bytes

    @property
    def end(self) -> End:
        return End(self.seq, self.chain)


def first_key(number: int) -> int:
    return number << RUN_BITS


def seed_of(execution_id: str) -> int:
    """Return the seed of the chain of a run."""
    return crc32(execution_id.encode())


def link(previous: int, seq: int, kind: int, step: int | None, body: bytes) -> int:
    """Return the checksum of a row that follows the checksum `previous`."""
    return crc32(body, crc32(_pack(seq, kind, _NO_STEP if step is None else step), previous))


def snapshot_checksum(execution_id: str, snapshot: Snapshot) -> int:
    seed = crc32(_pack(snapshot.seq, snapshot.step, snapshot.chain), seed_of(execution_id))
    return crc32(snapshot.body, seed)


def is_link(previous: int, seq: int, row: tuple[Any, Any, Any], crc: Any) -> bool:
    """Return whether the columns are a row as it was written.

    A damaged file may have values of any type.
    """
    try:
        return link(previous, seq, *row) == crc
    except (TypeError, struct.error):
        return False


def is_snapshot(execution_id: str, snapshot: Snapshot, crc: Any) -> bool:
    """Return whether the columns are a snapshot of this run."""
    try:
        return snapshot_checksum(execution_id, snapshot) == crc
    except (TypeError, struct.error):
        return False


def verified(stored: Iterable[tuple[Any, ...]], number: int, seq: int, previous: int) -> Iterator[Row]:
    """Yield rows (key, kind, step, body, crc) from `seq` on.

    Raises BrokenChainError at the first bad one.
    """
    base = first_key(number)
    for key, kind, step, body, crc in stored:
        # `is_link`, inlined for speed: a resume checks thousands of rows.
        try:
            head = crc32(_pack(seq, kind, _NO_STEP if step is None else step), previous)
            if key != base + seq or crc32(body, head) != crc:
                raise BrokenChainError(seq)
        except (TypeError, struct.error) as error:
            raise BrokenChainError(seq) from error
        previous = crc
        seq += 1
        yield Row(kind, step, body)
