"""What a run has spent, read from its logs: it survives any death of the process.

`logs/agent-calls.jsonl` has a line for each finished call. What is not finished is in `logs/spending.jsonl`: the last
figure of each turn that is under way, the seconds of work, and which provider does not serve until when. A turn that a
kill has cut counts with its last figure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.sessions.history import number, read_lines, seconds_since_1970
from atomic.usage import Usage

CALLS = "agent-calls.jsonl"
SPENDING = "spending.jsonl"


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


class Past(msgspec.Struct, frozen=True):
    """All that a governor must know of earlier processes."""

    spent: Spent = Spent()
    dearest: Mapping[str, Amount] = {}  # the dearest turn of each role
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


def read_past(logs: str | os.PathLike[str]) -> Past:
    """What the logs of a session tell; a line that a kill has cut short is passed over."""
    folder = Path(logs)
    reader = _Reader()
    for line in read_lines(folder / CALLS):
        reader.call(line)
    for line in read_lines(folder / SPENDING):
        reader.interim(line)
    return reader.past()


class SpendingLog:
    """Writes `logs/spending.jsonl`. Numbers only: there is nothing in it to redact."""

    def __init__(self, logs: str | os.PathLike[str]) -> None:
        self._path = Path(logs) / SPENDING

    def write(self, **facts: Any) -> None:
        line = msgspec.json.encode(facts) + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)


class _Reader:
    def __init__(self) -> None:
        self._settled = Amount()
        self._logged: dict[str, Amount] = {}  # calls with lines of their own; one may have had several turns
        self._ended: set[str] = set()
        self._open: dict[str, Amount] = {}
        self._dearest: dict[str, Amount] = {}
        self._parked: dict[str, float] = {}
        self._spans: list[tuple[float, float]] = []
        self._seconds = 0.0

    def call(self, line: Mapping[str, Any]) -> None:
        amount = amount_of(line.get("usage"))
        self._settled += amount
        role = str(line.get("role") or "")
        if line.get("reason") != "interrupted":  # what was cut does not tell what a turn takes
            self._dearest[role] = amount.at_least(self._dearest.get(role, Amount()))
        if isinstance(call := line.get("call"), str):
            self._logged[call] = amount + self._logged.get(call, Amount())
        if (end := seconds_since_1970(line.get("time"))) is not None:
            self._spans.append((end - number(line.get("seconds")), end))

    def interim(self, line: Mapping[str, Any]) -> None:
        self._seconds = max(self._seconds, number(line.get("worked")))
        call = line.get("call")
        if isinstance(call, str):
            self._figure(call, line)
        if isinstance(provider := line.get("parked"), str):
            self._parked[provider] = number(line.get("until"))

    def _figure(self, call: str, line: Mapping[str, Any]) -> None:
        if line.get("ended") is True:
            self._ended.add(call)
        elif isinstance(late := line.get("late"), dict):  # it came when the call was in its log already
            self._settled += msgspec.convert(late, Amount, strict=False)
        elif isinstance(amount := line.get("amount"), dict):
            self._open[call] = msgspec.convert(amount, Amount, strict=False)
        else:  # as older versions wrote it
            self._open[call] = amount_of(line.get("usage"), priced=line.get("priced") is not False)

    def _cut(self, call: str, amount: Amount) -> Amount:
        """What a turn had taken when it was cut: its last figure, less what is in the log of its call."""
        if self._spans and not self._logged:  # a log whose lines do not name their calls
            return Amount() if call in self._ended else amount
        logged = self._logged.get(call, Amount())
        is_more = amount.tokens > logged.tokens or amount.usd > logged.usd
        return (amount - logged).at_least(Amount()) if is_more else Amount()

    def past(self) -> Past:
        cut = sum((self._cut(call, amount) for call, amount in self._open.items()), Amount())
        total = self._settled + cut
        seconds = max(self._seconds, _covered(self._spans))
        spent = Spent(total.usd, total.input_tokens, total.output_tokens, seconds, total.unpriced)
        return Past(spent, self._dearest, self._parked)


def _fields(amount: Amount) -> tuple[Any, ...]:
    return (amount.usd, amount.input_tokens, amount.output_tokens, amount.unpriced)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The seconds in which somebody worked; two at once count once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total
