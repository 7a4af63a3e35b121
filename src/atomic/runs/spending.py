"""What a run has spent, call by call, in its journal.

Each call of an agent is a fact. It is written when the call starts, and replaced with
each report of usage and at the end. After a kill a call counts with its last report.
`logs/agent-calls.jsonl` is a copy for people (`copies`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from atomic.base.usage import Usage
from atomic.providers.events import AgentEvent, TextDelta, ThinkingDelta, ToolEnded, ToolStarted
from atomic.runs.limits import CHARACTERS_PER_TOKEN
from atomic.sessions.facts import Facts
from atomic.sessions.history import CallLook, number
from atomic.sessions.model import Cost

WORKED = "worked"
KILLED = "killed"  # the reason of a call that was running when Atomic was killed
ESTIMATE_STEP = 3_000  # characters, or a quarter more, after which a new estimate is written to the disk
_CALL = "calls/"


class Amount(msgspec.Struct, frozen=True):
    """What one or more turns took.

    `unpriced` counts the tokens without a known price.
    """

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
        """Return the larger of both, field by field."""
        return Amount(*(max(a, b) for a, b in zip(_fields(self), _fields(other), strict=True)))


class Spent(msgspec.Struct, frozen=True):
    """The total of a run and its resumes; `seconds` of work, without pauses."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    unpriced: int = 0  # tokens without a known price
    is_incomplete: bool = False  # a call has no price, or only an estimate

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> Cost:
        """The cost for `session.json`; no dollars if no turn has reported a price."""
        usd = None if self.unpriced and not self.usd else self.usd
        incomplete = True if self.is_incomplete and usd is not None else msgspec.UNSET
        return Cost(usd, self.input_tokens, self.output_tokens, incomplete)

    @property
    def amount(self) -> Amount:
        return Amount(self.usd, self.input_tokens, self.output_tokens, self.unpriced)


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of an agent as the journal has it; a call may have several turns."""

    id: str = ""
    role: str | None = None
    node: str | None = None
    task: str | None = None
    provider: str | None = None
    model: str | None = None
    file: str | None = None  # of the role's prompt; None: built in
    reason: str = ""  # how its last turn ended; empty: not ended
    usage: Usage = Usage()  # of all turns, as the agent reports it
    amount: Amount = Amount()  # as the caps count it
    seconds: float = 0.0
    estimated: bool = False  # from characters: the agent reports no tokens
    worked: float = 0.0  # seconds of work of the whole run when this was written

    @property
    def is_over(self) -> bool:
        return bool(self.reason)

    @property
    def is_incomplete(self) -> bool:
        """Return whether it ended without a price for all that it took."""
        if self.reason == KILLED:
            return True
        return self.is_over and self.usage.cost is None and self.amount != Amount()

    @property
    def who(self) -> str:
        return self.role or self.node or "agent"


class Past(msgspec.Struct, frozen=True):
    """The spending of earlier processes, for a budget."""

    spent: Spent = Spent()
    dearest: Mapping[str, Amount] = {}  # the most expensive turn of each role


def amount_of(usage: Any, *, priced: bool = True) -> Amount:
    """Return the amount of a turn, from a `Usage` or the JSON of one."""
    figures: Mapping[str, Any] = {} if usage is None else msgspec.to_builtins(usage)
    read = int(number(figures.get("input")))
    written = int(number(figures.get("output")))
    cost = figures.get("cost")
    # Any reported price counts. Zero is not a price if the agent is not known to report
    # prices.
    if isinstance(cost, int | float) and (priced or cost > 0):
        return Amount(number(cost), read, written, 0)
    return Amount(0.0, read, written, read + written)


def weighted_tokens(usage: Usage) -> float:
    """Return tokens weighted by typical prices: cached input a tenth, output five times
    the input.
    """
    return (usage.input - usage.cached) + 0.1 * usage.cached + 5.0 * usage.output


def write_call(facts: Facts, call: CallRecord) -> None:
    """Keep the record of a call; it is on the disk when this returns.

    Raises JournalError.
    """
    facts.set(f"{_CALL}{call.id}", call)


def read_calls(facts: Mapping[str, Any]) -> Iterator[CallRecord]:
    """Yield the calls of a run in the order of their start, also unfinished ones."""
    for name, value in facts.items():
        if name.startswith(_CALL):
            yield msgspec.convert(value, CallRecord)


def read_killed(facts: Mapping[str, Any]) -> list[CallLook]:
    """Return the calls that ended with their process; none of them may still run."""
    return [
        CallLook(
            started=0.0, seconds=call.seconds, node=call.node or "", role=call.role or "", task=call.task or "",
            provider=call.provider or "", model=call.model or "", reason=KILLED, tokens=call.amount.tokens,
            cost=call.amount.usd or None,
        )
        for call in read_calls(facts)
        if call.id and (call.reason == KILLED or not call.is_over)
    ]  # fmt: skip


def end_killed_calls(facts: Facts) -> None:
    """End the calls that were running when Atomic was killed, with their last usage.

    The caller owns the run and has not started a call yet. Raises JournalError.
    """
    for call in list(read_calls(facts)):
        if call.id and not call.is_over:
            write_call(facts, msgspec.structs.replace(call, reason=KILLED))


def read_past(facts: Mapping[str, Any]) -> Past:
    """Return the spending that the journal of a run has."""
    total = Amount()
    seconds = number(facts.get(WORKED))
    dearest: dict[str, Amount] = {}
    for call in read_calls(facts):
        total += call.amount
        seconds = max(seconds, call.worked)
        if call.is_over and call.reason not in ("interrupted", KILLED):  # an interrupted turn is not typical
            role = call.role or ""
            dearest[role] = call.amount.at_least(dearest.get(role, Amount()))
    is_incomplete = any(call.is_incomplete for call in read_calls(facts))
    spent = Spent(total.usd, total.input_tokens, total.output_tokens, seconds, total.unpriced, is_incomplete)
    return Past(spent, dearest)


def _fields(amount: Amount) -> tuple[Any, ...]:
    return (amount.usd, amount.input_tokens, amount.output_tokens, amount.unpriced)


class CharacterCount:
    """Counts the characters of a turn, then of the next one."""

    def __init__(self, prompt: str) -> None:
        self._prompt = len(prompt)
        self.begin_turn()

    def begin_turn(self) -> None:
        """Start a new count; the agent reads the prompt again."""
        self._read = self._prompt
        self._written = 0
        self._reported = 0
        self.has_any = False

    def count(self, event: AgentEvent) -> None:
        """Count the text that an agent writes and that its tools return."""
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._written += len(text)
            case ToolStarted(name=name, input=input):
                self._written += len(name) + len(str(input))
            case ToolEnded(output=text):
                self._read += len(text)
            case _:
                return
        self.has_any = True

    def has_grown(self) -> bool:
        """Return whether the count has grown enough to report it, and note it as
        reported.
        """
        total = self._read + self._written
        if not self.has_any or total - self._reported < max(ESTIMATE_STEP, self._reported // 4):
            return False
        self._reported = total
        return True

    @property
    def usage(self) -> Usage:
        """The tokens, rounded up."""
        return Usage(-(-self._read // CHARACTERS_PER_TOKEN), -(-self._written // CHARACTERS_PER_TOKEN))
