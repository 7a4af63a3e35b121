"""How a row proves its place: each carries a checksum that goes on from the one of the row before it.

A flipped bit, a missing row, one that changed its place or came from another run: the chain does not go on.
The first row is seeded with the run's id, so that whole runs cannot be mixed up either.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from zlib import crc32

from atomic.graph.journal import Row
from atomic.sessions.errors import BrokenChainError

# A run is one contiguous range of keys: its number, then 40 bits to count its rows. No second index is needed to find
# the rows of a run, and 2^40 rows are a row a millisecond for 34 years.
RUN_BITS = 40

_pack = struct.Struct("<qqq").pack
_NO_STEP = -(2**63)


class End(NamedTuple):
    """Where a run goes on: the number and the checksum of its last row."""

    seq: int
    crc: int


class Snapshot(NamedTuple):
    """A folded state and the row it follows; `chain` is that row's checksum."""

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
    """Where the chain of a run begins."""
    return crc32(execution_id.encode())


def link(previous: int, seq: int, kind: int, step: int | None, body: bytes) -> int:
    """The checksum of a row, from that of the row before it."""
    return crc32(body, crc32(_pack(seq, kind, _NO_STEP if step is None else step), previous))


def snapshot_checksum(execution_id: str, snapshot: Snapshot) -> int:
    seed = crc32(_pack(snapshot.seq, snapshot.step, snapshot.chain), seed_of(execution_id))
    return crc32(snapshot.body, seed)


def is_link(previous: int, seq: int, row: tuple[Any, Any, Any], crc: Any) -> bool:
    """Whether these columns are the row that was written there. A damaged file may hold values of any type."""
    try:
        return link(previous, seq, *row) == crc
    except (TypeError, struct.error):
        return False


def is_snapshot(execution_id: str, snapshot: Snapshot, crc: Any) -> bool:
    """Whether these columns are a snapshot that was written for this run."""
    try:
        return snapshot_checksum(execution_id, snapshot) == crc
    except (TypeError, struct.error):
        return False


def verified(stored: Iterable[tuple[Any, ...]], number: int, seq: int, previous: int) -> Iterator[Row]:
    """Check rows (key, kind, step, body, crc) that begin at `seq`. Raises BrokenChainError at the first bad one."""
    base = first_key(number)
    for key, kind, step, body, crc in stored:
        # `is_link` written out: a resume goes through here a thousand times.
        try:
            head = crc32(_pack(seq, kind, _NO_STEP if step is None else step), previous)
            if key != base + seq or crc32(body, head) != crc:
                raise BrokenChainError(seq)
        except (TypeError, struct.error) as error:
            raise BrokenChainError(seq) from error
        previous = crc
        seq += 1
        yield Row(kind, step, body)
