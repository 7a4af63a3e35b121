"""What a run has spent, turn by turn, in its journal.

Each call of an agent is a fact, written when it begins and replaced with each figure and at its end. A call that a kill
has cut counts with its last figure. `logs/agent-calls.jsonl` is a copy for people: it is compared, never read back.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.bounded import read_bounded
from atomic.sessions.facts import Facts
from atomic.sessions.history import number, objects_in
from atomic.usage import Usage

CALLS = "logs/agent-calls.jsonl"
PARKED, WORKED = "parked", "worked"
KILLED = "killed"  # the reason of a call that was under way when Atomic was killed
_CALL = "calls/"
_MOST_BYTES = 64 * 1024 * 1024  # of the copy; a line has less than 1 KiB


class Amount(msgspec.Struct, frozen=True):
    """What one turn, or several, took; `unpriced` are the tokens whose price nobody knows."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    unpriced: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Amount) -> Amount:
        return Amount(*(a + b for a, b in zip(_fields(self), _fields(other), strict=True)))

    def __sub__(self, other: Amount) -> Amount:
        return Amount(*(a - b for a, b in zip(_fields(self), _fields(other), strict=True)))

    def at_least(self, other: Amount) -> Amount:
        """The greater of both, figure by figure."""
        return Amount(*(max(a, b) for a, b in zip(_fields(self), _fields(other), strict=True)))


class Spent(msgspec.Struct, frozen=True):
    """What a run and its resumes have spent; `seconds` are those of work, not of pauses."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    unpriced: int = 0  # tokens whose price nobody knows

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def amount(self) -> Amount:
        return Amount(self.usd, self.input_tokens, self.output_tokens, self.unpriced)

    @property
    def known_usd(self) -> float | None:
        """The dollars, None where no turn has told its price: the `usd` of `session.json`."""
        return None if self.unpriced and not self.usd else self.usd


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of an agent as the journal has it; a call may have several turns."""

    id: str = ""
    role: str | None = None
    node: str | None = None
    task: str | None = None
    provider: str | None = None
    model: str | None = None
    file: str | None = None  # with the words of the role; None: they are built in
    reason: str = ""  # how its last turn ended; empty: it has not ended
    usage: Usage = Usage()  # as its agent tells it, all turns together
    amount: Amount = Amount()  # as it counts
    seconds: float = 0.0
    estimated: bool = False  # the agent tells no figures: they are made from characters
    worked: float = 0.0  # seconds of work of the whole run, when this was written

    @property
    def is_over(self) -> bool:
        return bool(self.reason)

    @property
    def who(self) -> str:
        return self.role or self.node or "agent"


class Past(msgspec.Struct, frozen=True):
    """All that a governor must know of earlier processes."""

    spent: Spent = Spent()
    dearest: Mapping[str, Amount] = {}  # the most expensive turn of each role
    parked: Mapping[str, float] = {}  # when each limited provider serves again, seconds since 1970


def amount_of(usage: Any, *, priced: bool = True) -> Amount:
    """What a turn took, from its usage: a `Usage`, or what JSON made of it."""
    figures: Mapping[str, Any] = {} if usage is None else msgspec.to_builtins(usage)
    read, written = int(number(figures.get("input"))), int(number(figures.get("output")))
    cost = figures.get("cost")
    # A told price counts, whoever tells it. A zero is no price from an agent that is not known to tell prices.
    known = isinstance(cost, int | float) and (priced or cost > 0)
    return Amount(number(cost) if known else 0.0, read, written, 0 if known else read + written)


def weighted_tokens(usage: Usage) -> float:
    """Tokens by what they cost with most models: cached ones a tenth, written ones five times as much as read ones."""
    return (usage.input - usage.cached) + 0.1 * usage.cached + 5.0 * usage.output


# in the journal ----------------------------------------------------------------------------------------------------


def write_call(facts: Facts, call: CallRecord) -> None:
    """Keep what is known of a call; it is on the disk when this returns. Raises JournalError."""
    facts.set(f"{_CALL}{call.id}", call)


def read_calls(facts: Mapping[str, Any]) -> Iterator[CallRecord]:
    """The calls of a run, in the order in which they began; those under way or cut too."""
    for name, value in facts.items():
        if name.startswith(_CALL):
            yield msgspec.convert(value, CallRecord)


def end_killed_calls(facts: Facts) -> None:
    """Note the calls that were under way when Atomic was killed as ended, with what is known of them.

    For someone who owns the run, before a call begins. Raises JournalError.
    """
    for call in list(read_calls(facts)):
        if call.id and not call.is_over:
            write_call(facts, msgspec.structs.replace(call, reason=KILLED))


def read_past(facts: Mapping[str, Any]) -> Past:
    """What the journal of a run tells a governor."""
    total, seconds = Amount(), number(facts.get(WORKED))
    dearest: dict[str, Amount] = {}
    for call in read_calls(facts):
        total += call.amount
        seconds = max(seconds, call.worked)
        if call.is_over and call.reason not in ("interrupted", KILLED):  # a cut turn does not tell what one takes
            role = call.role or ""
            dearest[role] = call.amount.at_least(dearest.get(role, Amount()))
    spent = Spent(total.usd, total.input_tokens, total.output_tokens, seconds, total.unpriced)
    return Past(spent, dearest, facts.get(PARKED, {}))


def is_copy_changed(facts: Mapping[str, Any], session_dir: str | os.PathLike[str]) -> bool:
    """Whether `logs/agent-calls.jsonl` tells other figures than the journal.

    A line is written before the journal has the end of its call. So a kill leaves lines of calls that have not ended,
    and never a call that has ended without its lines. Anything that cannot be read, such as a pipe in its place, is a
    change too.
    """
    try:
        lines = read_bounded(Path(session_dir) / CALLS, _MOST_BYTES).splitlines()
    except FileNotFoundError:
        lines = []
    except OSError:
        return True
    told: dict[str, Usage] = {}
    known = {call.id: call for call in read_calls(facts)}
    for line in objects_in(lines):
        id = line.get("call")
        if id not in known:
            return bool(known) and "" not in known  # lines of an older version name no call
        told[id] = told.get(id, Usage()) + _usage(line.get("usage"))
    ended = [call for call in known.values() if call.is_over and call.id and call.reason != KILLED]
    return any(not _is_same(told.get(call.id), call.usage) for call in ended)


def _usage(data: Any) -> Usage:
    try:
        return msgspec.convert(data, Usage)
    except msgspec.ValidationError:
        return Usage(-1)


def _is_same(one: Usage | None, other: Usage) -> bool:
    if one is None:
        return False
    is_same_cost = (one.cost is None) == (other.cost is None) and math.isclose(
        one.cost or 0.0, other.cost or 0.0, abs_tol=1e-9
    )
    return is_same_cost and (one.input, one.output) == (other.input, other.output)


def _fields(amount: Amount) -> tuple[Any, ...]:
    return (amount.usd, amount.input_tokens, amount.output_tokens, amount.unpriced)
