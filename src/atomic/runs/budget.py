"""The budget of a run: decides whether a turn of an agent may start, and when.

Money is reserved before a turn and settled after it. The reserve is the cost of the
most expensive turn of the same role so far. If it does not fit, the turn waits for the
running turns, which may cost less. If no turn is running and a cap is reached, the run
pauses. So a cap is exceeded by one turn per parallel worker at most.

A running turn is interrupted only if it greatly exceeds the rest of a cap (`cut_for`).
Turns of a rate-limited provider wait for its reset (`rate_limits`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypedDict, Unpack
from uuid import uuid4

import msgspec

from atomic.base.usage import Usage
from atomic.graph.engine.errors import JournalError, RunOwnedError
from atomic.runs.limits import CHARACTERS_PER_TOKEN, Caller, CapReached, Caps, OnLimit
from atomic.runs.rate_limits import RateLimits
from atomic.runs.spending import (
    WORKED,
    Amount,
    CallRecord,
    Spent,
    amount_of,
    end_killed_calls,
    read_calls,
    read_past,
    weighted_tokens,
    write_call,
)
from atomic.sessions.facts import Facts

TOKENS_PER_DOLLAR = 100_000  # if neither a price nor a token cap is known: dearer than nearly every model
DOLLARS_PER_TOKEN = 5e-6  # until an agent that reports a price at the end of its turns has reported one
_KEEP_SECONDS = 5.0  # of work between two notes of the time in the journal
_OVERTIME = 5.0  # seconds for turns and checks to end by themselves


class CallDetails(TypedDict, total=False):
    """Details that the journal keeps with a call."""

    node: str | None
    task: str | None
    model: str | None
    file: str | None


class TurnMaximum(msgspec.Struct, frozen=True):
    """The most that one turn may cost before it is interrupted; None: any amount."""

    usd: float | None = None
    tokens: float | None = None


class TurnSpending:
    """The cost of one turn.

    Each report covers the whole turn so far; late ones count too.
    """

    def __init__(
        self, budget: Budget, call: CallRecord, reserved: Amount, maximum: TurnMaximum, *, priced: bool
    ) -> None:
        self.call = call
        self.reserved = reserved
        self.maximum = maximum
        self.priced = priced
        self.is_open = True
        self.is_cut = False
        self.written: CallRecord | None = None  # as the journal has it
        self._budget = budget

    @property
    def id(self) -> str:
        return self.call.id  # `call` in agent-calls.jsonl

    @property
    def role(self) -> str:
        return self.call.role or ""

    @property
    def amount(self) -> Amount:
        return self.call.amount

    def report(self, usage: Usage, *, is_final: bool = True, estimated: bool = False) -> None:
        """Record the usage of the turn so far. Not final: a price may follow."""
        self._budget.record_usage(self, usage, is_final=is_final, estimated=estimated)

    def end(self, reason: str, seconds: float) -> None:
        """Note how a turn of the call ended.

        The next report or the settlement writes it.
        """
        self.call = msgspec.structs.replace(self.call, reason=reason, seconds=self.call.seconds + seconds)

    @property
    def committed(self) -> Amount:
        """Return the larger of the cost of the turn and its reserve."""
        return self.amount.at_least(self.reserved)


class Budget:
    """Keeps a run within its caps and its providers' limits.

    `warn` shows a message to the user. `open` connects the budget with the journal,
    which survives a kill. `clock` is the wall clock.
    """

    def __init__(
        self,
        caps: Caps | None = None,
        *,
        on_limit: OnLimit = "wait",
        run: str = "",
        caller: Caller = "command",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        self.caps = caps or Caps()
        self.rate_limits = RateLimits(
            on_limit, run=run, caller=caller, clock=clock, sleep=sleep, warn=self._warn_once, resting=self.resting
        )
        self._run = run
        self._caller: Caller = caller
        self._warn = warn
        self._facts: Facts | None = None
        self._settled = Amount()
        self._dearest: dict[str, Amount] = {}  # by role: the most expensive turn
        self._finished: dict[str, Amount] = {}  # by role: the most expensive turn that was not interrupted
        self._rates: dict[str, float] = {}  # by provider: dollars per weighted token
        self._live: list[TurnSpending] = []
        self._changed = asyncio.Event()
        self._watch = _Stopwatch(clock)
        self._kept_seconds = 0.0  # the seconds of work that the journal has
        self._warned: set[str] = set()

    def open(self, facts: Facts, *, before: Amount | None = None) -> None:
        """Read the spending of earlier processes, and keep that of this one.

        `before` is the total of a run of an older version, which kept it elsewhere.
        Raises JournalError.
        """
        self._facts = facts
        if before and before != Amount() and not any(True for _ in read_calls(facts)):
            write_call(facts, CallRecord(amount=before))
        end_killed_calls(facts)
        past = read_past(facts)
        self._settled += past.spent.amount
        self._watch.add(past.spent.seconds)
        self._kept_seconds = self._watch.seconds
        self.rate_limits.open(facts)
        for known in (self._dearest, self._finished):
            known.update({role: amount.at_least(known.get(role, Amount())) for role, amount in past.dearest.items()})

    @property
    def spent(self) -> Spent:
        """Return the total of the run, including running turns."""
        total = sum((turn.amount for turn in self._live), self._settled)
        return Spent(total.usd, total.input_tokens, total.output_tokens, self._watch.seconds, total.unpriced)

    @property
    def is_incomplete(self) -> bool:
        """Return whether a call has ended without a price for all that it took."""
        return self._facts is not None and any(call.is_incomplete for call in read_calls(self._facts))

    @asynccontextmanager
    async def turn(
        self,
        role: str | None = None,
        *,
        priced: bool = True,
        provider: str = "",
        first: Usage | None = None,
        **details: Unpack[CallDetails],
    ) -> AsyncGenerator[TurnSpending]:
        """Wait until a turn may start, and settle it however it ends.

        `details` is kept with it.

        `first` estimates the least that the turn takes. It counts if Atomic is killed
        before the agent reports any usage.

        Raises:
            CapReached: a cap is reached, and no running turn can change that.
            Parked: the provider is rate-limited, and the run must not wait.
        """
        await self.rate_limits.wait_for(provider)
        call = CallRecord(id=uuid4().hex[:12], role=role, provider=provider, **details)
        if first is not None:
            amount = self._amount(call, first, priced=priced, is_final=False)
            call = msgspec.structs.replace(call, amount=amount, estimated=True)
        turn = await self._admitted(call, priced=priced)
        try:
            yield turn
        finally:
            self._settle(turn)

    def record_usage(self, turn: TurnSpending, usage: Usage, *, is_final: bool = True, estimated: bool = False) -> None:
        """Record the usage of a turn, also if it is reported after the end of the turn."""
        amount = self._amount(turn.call, usage, priced=turn.priced, is_final=is_final)
        late = amount - turn.amount
        if not turn.is_open:
            self._settled += late
        reason = turn.call.reason if is_final else ""
        turn.call = msgspec.structs.replace(turn.call, usage=usage, amount=amount, estimated=estimated, reason=reason)
        self._dearest[turn.role] = amount.at_least(self._dearest.get(turn.role, Amount()))
        self._write_if_possible(turn)
        if is_final and estimated:
            self._warn_estimated(turn.call.provider or "the agent")
        elif is_final:
            self._warn_unpriced(amount.unpriced > 0)
        self._changed.set()

    def _amount(self, call: CallRecord, usage: Usage, *, priced: bool, is_final: bool) -> Amount:
        """Return the amount of a usage.

        A price that is reported only at the end is estimated until then.
        """
        amount = amount_of(usage, priced=priced)
        weight = weighted_tokens(usage)
        provider = call.provider or ""
        if is_final and not amount.unpriced and weight:
            self._rates[provider] = max(amount.usd / weight, self._rates.get(provider, 0.0))
        if is_final or not priced or not amount.unpriced:
            return amount
        estimate = weight * self._rates.get(provider, DOLLARS_PER_TOKEN)
        return msgspec.structs.replace(amount, usd=estimate, unpriced=0)

    async def _admitted(self, call: CallRecord, *, priced: bool) -> TurnSpending:
        role = call.role or ""
        while True:
            expected = self._dearest.get(role) or _dearest_of(self._dearest.values())
            committed = sum((turn.committed for turn in self._live), self._settled)
            reached = self._reached(committed)
            if reached is None and (not self._live or self._reached(committed + expected, beyond=True) is None):
                turn = TurnSpending(self, call, expected, self._maximum(role, committed), priced=priced)
                self._write(turn)
                self._live.append(turn)
                self._watch.work(1)
                return turn
            if not self._live:
                assert reached is not None
                raise reached
            self._changed.clear()
            await self._changed.wait()

    def _maximum(self, role: str, committed: Amount) -> TurnMaximum:
        """Return the maximum of a turn that starts now: the rest of the cap, plus an
        extra.

        The extra is twice the most expensive finished turn of the role. If the role has
        none, it is the rest of the cap, or twice the most expensive turn of any role if
        that is more.
        """
        known = self._finished.get(role)
        extra = known or _dearest_of(self._finished.values())
        found: list[float | None] = []
        for limit, spent, more in (
            (self.caps.max_cost, self._dollars(committed), self._dollars(extra)),
            (self.caps.max_tokens, committed.tokens, extra.tokens),
        ):
            if limit is None:
                found.append(None)
                continue
            left = max(0.0, limit - spent)
            found.append(left + (2 * more if known else max(2 * more, left)))
        return TurnMaximum(*found)

    def cut_for(self, turn: TurnSpending) -> CapReached | None:
        """Return the cap for which a turn must be interrupted now, if there is one."""
        caps = self.caps
        total = self.spent
        found = (
            ("max_cost", caps.max_cost, turn.maximum.usd, self._dollars(turn.amount), self._dollars(total.amount)),
            ("max_tokens", caps.max_tokens, turn.maximum.tokens, turn.amount.tokens, total.tokens),
            ("max_time", caps.max_time, self._time_to_cut, total.seconds, total.seconds),
        )
        for kind, limit, bound, taken, spent in found:
            if limit is not None and bound is not None and taken > bound:
                return CapReached(kind, limit, spent, run=self._run, cut="turn", caller=self._caller)
        return None

    @property
    def _time_to_cut(self) -> float | None:
        return None if self.caps.max_time is None else self.caps.max_time + self.caps.grace_seconds

    @property
    def seconds_to_cut(self) -> float | None:
        """Return the seconds that running turns may still take; None: no limit."""
        end = self._time_to_cut
        if end is None:
            return None
        return max(0.0, end - self._watch.seconds) + 0.001  # so that the limit is passed, not only reached

    @property
    def time_reached(self) -> CapReached | None:
        """Return the cap if `--max-time` is over, so that no new step may begin."""
        limit = self.caps.max_time
        if limit is None or self._watch.seconds < limit:
            return None
        return self._time_cap(limit)

    def _time_cap(self, limit: float, *, note: str = "", cut: str = "") -> CapReached:
        seconds = self._watch.seconds
        return CapReached("max_time", limit, seconds, run=self._run, note=note, cut=cut, caller=self._caller)

    def overtime(self, what: str) -> CapReached | None:
        """Return the cap if `what` continues after `--max-time` and its grace.

        Turns and checks end by themselves at that time; a few seconds more are theirs.
        """
        end = self._time_to_cut
        if self.caps.max_time is None or end is None or self._watch.seconds < end + _OVERTIME:
            return None
        note = f"; {what} was interrupted, and a resume runs it again"
        return self._time_cap(self.caps.max_time, note=note)

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncGenerator[None]:
        """Interrupt the body, which is not a turn, after `--max-time` and its grace.

        Raises CapReached then, with `what` was interrupted.
        """
        limit = asyncio.timeout(self.seconds_to_cut)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired() or self.caps.max_time is None:
                raise
            raise self._time_cap(self.caps.max_time, cut=what) from None

    def _dollars(self, amount: Amount) -> float:
        """Return the dollars of an amount.

        Tokens without a price are converted if no other cap counts them.
        """
        if self.caps.max_tokens is not None:
            return amount.usd
        return amount.usd + amount.unpriced / TOKENS_PER_DOLLAR

    def _settle(self, turn: TurnSpending) -> None:
        turn.is_open = False
        if not turn.is_cut:
            known = self._finished.get(turn.role, Amount())
            self._finished[turn.role] = turn.amount.at_least(known)
        self._live.remove(turn)
        self._settled += turn.amount
        self._watch.work(-1)
        self._changed.set()
        self._write_if_possible(turn)

    def _reached(self, amount: Amount, *, beyond: bool = False) -> CapReached | None:
        """Return the cap that an amount reaches, or with `beyond` exceeds."""
        caps = self.caps
        note = ""
        if caps.max_tokens is None and amount.unpriced:
            note = f" ({amount.unpriced:,} tokens without a price count as ${amount.unpriced / TOKENS_PER_DOLLAR:.2f})"
        found = (
            ("max_cost", caps.max_cost, self._dollars(amount), note),
            ("max_tokens", caps.max_tokens, amount.tokens, ""),
            ("max_time", caps.max_time, self._watch.seconds, ""),
        )
        for kind, limit, spent, remark in found:
            if limit is None or spent < limit or (beyond and spent == limit):
                continue
            return CapReached(kind, limit, spent, run=self._run, note=remark, caller=self._caller)
        return None

    def _write(self, turn: TurnSpending) -> None:
        if self._facts is None or turn.call == turn.written:
            return
        worked = round(self._watch.seconds, 3)
        write_call(self._facts, msgspec.structs.replace(turn.call, worked=worked))
        self._kept_seconds = worked
        turn.written = turn.call

    def _write_if_possible(self, turn: TurnSpending) -> None:
        """Write the cost of a turn.

        If that fails, keep its work: the next turn cannot start then.
        """
        with suppress(JournalError, RunOwnedError):
            self._write(turn)

    def _warn_unpriced(self, is_unpriced: bool) -> None:
        cost = self.caps.max_cost
        tokens = self.caps.max_tokens
        if not is_unpriced or cost is None:
            return
        cost_cap = self._named_cap("max_cost")
        token_cap = self._named_cap("max_tokens")
        if tokens is not None:
            self._warn_once(
                f"the agent does not report prices: {token_cap}{tokens:,} counts, not {cost_cap.rstrip(' =')}"
            )
        else:
            kept = int(cost * TOKENS_PER_DOLLAR)
            self._warn_once(
                f"the agent does not report prices: {cost_cap}{cost:g} counts as {kept:,} tokens"
                f" ({token_cap}N sets another number)"
            )

    def _named_cap(self, kind: str) -> str:
        """Return how the user sets a cap, up to its value."""
        return f"{kind}=" if self._caller == "python" else f"--{kind.replace('_', '-')} "

    def _warn_estimated(self, provider: str) -> None:
        if self.caps.max_cost is not None or self.caps.max_tokens is not None:
            self._warn_once(
                f"{provider} reports neither tokens nor prices: the caps count an estimate,"
                f" one token for {CHARACTERS_PER_TOKEN} characters of prompt, answer and tool calls"
            )
        self._warn_unpriced(True)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and self._warn is not None:
            self._warn(text)
        self._warned.add(text)

    @contextmanager
    def resting(self) -> Generator[None]:
        """Count no time in the body while no turn is running."""
        self._watch.rest(1)
        try:
            yield
        finally:
            self._watch.rest(-1)

    @contextmanager
    def asking(self) -> Generator[None]:
        """Count a turn as not running while its agent waits for the user."""
        self._watch.work(-1)
        try:
            yield
        finally:
            self._watch.work(1)

    def keep_time(self) -> None:
        """Keep the seconds so far, every few seconds, so that a kill loses few of them.

        If that fails, keep the work: the next step cannot be recorded then.
        """
        seconds = self._watch.seconds
        if self._facts is None or seconds < self._kept_seconds + _KEEP_SECONDS:
            return
        self._kept_seconds = seconds
        with suppress(JournalError, RunOwnedError):
            self._facts.set(WORKED, round(seconds, 3))

    def stop(self) -> None:
        """Stop the clock and keep the seconds that the run took.

        Raises JournalError.
        """
        self._watch.stop()
        if self._facts is not None:
            self._facts.set(WORKED, round(self._watch.seconds, 3))


class _Stopwatch:
    """Counts the seconds of work.

    It stops while something rests and no turn is running.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._before = 0.0
        self._since: float | None = clock()  # None: stopped
        self._rests = 0
        self._turns = 0

    @property
    def seconds(self) -> float:
        if self._since is None:
            return self._before
        return self._before + max(0.0, self._clock() - self._since)  # the wall clock may be set back

    def add(self, seconds: float) -> None:
        """Add the seconds of earlier processes."""
        self._before += seconds

    def work(self, change: int) -> None:
        self._turns += change
        self._update()

    def rest(self, change: int) -> None:
        self._rests += change
        self._update()

    def stop(self) -> None:
        self._before = self.seconds
        self._since = None

    def _update(self) -> None:
        """Stop or start the clock."""
        if self._rests and not self._turns:
            self.stop()
        elif self._since is None:
            self._since = self._clock()


def _dearest_of(amounts: Iterable[Amount]) -> Amount:
    dearest = Amount()
    for amount in amounts:
        dearest = dearest.at_least(amount)
    return dearest
