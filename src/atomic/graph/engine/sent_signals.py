"""Signals: what can be sent to a run, and how a step's parts keep what it received.

A step that waits writes up to three parts: that it waits, the signals that it refused,
and the signal that it received or that the time was over. So a step that runs again
gets the same signal, and no signal is received twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import SignalError, StateError
from atomic.graph.engine.journal import EndedBody, Row, RowKind, SignalBody, decode_body
from atomic.graph.engine.state import encode_value

OWN_PARTS = "atomic:"  # the engine's own parts of a step; no author's key starts so
RECEIVED = "atomic:signal:"
_REFUSED = "atomic:refused:"
_WAITING = "atomic:wait:"

LONGEST_NAME = 200  # characters
MOST_BYTES = 1_000_000  # of the data of one signal, as of an answer


def check_name(name: Any) -> str:
    """Return the name of a signal. Raise SignalError."""
    if not isinstance(name, str):
        raise SignalError(f"The name of a signal is a text, not {name!r:.60}")
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise SignalError(
            f"{name!r:.60} cannot be the name of a signal: give 1 to {LONGEST_NAME} printable characters, without"
            " line breaks, control characters or blanks at its ends"
        )
    return name


def packed_signal(name: str, data: Any) -> bytes:
    """Return the data of a signal as a journal keeps it. Raise SignalError."""
    check_name(name)
    try:
        packed = encode_value(data, "data")
    except StateError as error:
        raise SignalError(f'The data of the signal "{name}" cannot be sent: {error}') from error
    if len(packed) > MOST_BYTES:
        raise SignalError(
            f'The data of the signal "{name}" has {len(packed):,} bytes, and a signal has at most {MOST_BYTES:,}:'
            " put it into a file and send its path"
        )
    return packed


def signal_body(name: str, packed: bytes, *, after: int) -> SignalBody:
    """Return the next signal of a run whose last one has the number `after`.

    Numbers follow the clock, so that they also grow if a damaged journal has lost the
    last signals.
    """
    now = time.time()
    return SignalBody(max(after + 1, int(now * 1_000_000)), name, now, msgspec.Raw(packed))


def check_can_receive(execution_id: str, last: Row) -> None:
    """Raise SignalError if a run has ended for good, as its last row says: no step of it
    will wait for a signal.
    """
    if last.kind != RowKind.ENDED:
        return
    ended = decode_body(last, EndedBody)
    if ended.status == RunStatus.COMPLETED or ended.is_over:
        raise SignalError(f'Run "{execution_id}" is {ended.status} and receives no signal: nothing was sent')


def wait_key(name: str, n: int) -> str:
    """Return the key of the part that says that a step waits: its n-th wait for a name."""
    return f"{_WAITING}{name}#{n}"


def received_key(name: str, n: int) -> str:
    return f"{RECEIVED}{name}#{n}"


def refused_key(name: str, n: int) -> str:
    return f"{_REFUSED}{name}#{n}"


def taken_signal(key: str, packed: bytes) -> tuple[str, int] | None:
    """Return the name and the number of the signal that a part of a step has taken."""
    for prefix in (RECEIVED, _REFUSED):
        if key.startswith(prefix):
            number = msgspec.msgpack.decode(packed).get("number")
            return None if number is None else (key[len(prefix) :].rpartition("#")[0], number)
    return None


def kept_parts(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the parts of a failed attempt that the next one gets: its signals are sent
    only once.
    """
    return {key: part for key, part in parts.items() if taken_signal(key, part) is not None}


def awaited_in(parts: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the names of the signals that a step waits for, from its parts."""
    for key in parts:
        place = key.removeprefix(_WAITING)  # the name and the number of the wait
        if place != key and f"{RECEIVED}{place}" not in parts:
            yield place.rpartition("#")[0]
