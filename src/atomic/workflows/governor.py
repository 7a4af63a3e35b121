"""One governor for a run: it says whether a turn of an agent may begin, and when.

Money is reserved before a turn and settled after it. A turn is expected to take what the dearest turn of its role took
so far. Where that does not fit any more, it waits for those at work to end: they may take less. When nobody works and
the cap is reached, the run pauses. So a cap is passed by one turn for each live worker at most, and mostly by one.

A turn at work is interrupted only when it has gone far beyond what was left: `cut_for` says when.

A provider that does not serve parks its turns until the wall clock says that it serves again: a machine that slept,
or an Atomic that was started anew, wakes by the same time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from typing import Literal, TypedDict, Unpack
from uuid import uuid4

import msgspec

from atomic.errors import AtomicError
from atomic.graph.errors import JournalError, RunOwnedError
from atomic.sessions.facts import Facts
from atomic.usage import Usage
from atomic.workflows.ledger import (
    PARKED,
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
from atomic.workflows.limits import CHARACTERS_PER_TOKEN, Caps, duration

OnLimit = Literal["wait", "stop", "switch"]

TOKENS_PER_DOLLAR = 100_000  # where no price is known and no token cap is given: dearer than nearly every model
DOLLARS_PER_TOKEN = 5e-6  # while a turn runs whose agent tells its price at the end, and has told none yet
LOOK_SECONDS = 15.0  # how often the wall clock is looked at: a sleep does not notice that the machine slept
LATE_SECONDS = 5.0  # many runs that wait for one reset do not come back in one moment
FIRST_WAIT, LONGEST_WAIT = 60.0, 900.0  # where a provider does not say when it serves again
LONGEST_RESET = 8 * 86400.0  # usage windows are a week at most; what lies behind that is a mistake


class CapReached(AtomicError):
    """A cap is reached and nobody works any more: the run pauses. `kind` is the reason it pauses for."""

    def __init__(self, kind: str, limit: float, spent: float, *, run: str = "", note: str = "", cut: str = "") -> None:
        self.kind, self.limit, self.spent = kind, limit, spent
        self.flag = f"--{kind.replace('_', '-')}"
        shown = _SHOWN[kind]
        self.remedy = f"{self.flag} {_argument(kind, 2 * max(limit, spent))}"
        self.raise_with = f"atomic resume {run or 'ID'} {self.remedy}"
        cut = f"; the {cut} at work was interrupted, and what it did is kept" if cut else ""
        super().__init__(
            f"{self.flag} is reached: {shown(spent)} of {shown(limit)} spent{note}{cut}"
            f" (to continue: {self.raise_with})"
        )


class Parked(AtomicError):
    """A provider does not serve now and `--on-limit stop` says not to wait. `reset_at`: seconds since 1970."""

    def __init__(self, provider: str, reset_at: float, *, run: str = "") -> None:
        self.provider, self.reset_at = provider, reset_at
        self.remedy = "--on-limit wait"
        who = provider or "the provider"
        super().__init__(
            f"{who} has reached its usage limit until {_at(reset_at)}"
            f" (to wait for it: atomic resume {run or 'ID'} {self.remedy})"
        )


class About(TypedDict, total=False):
    """What else is kept of a call."""

    node: str | None
    task: str | None
    model: str | None
    file: str | None


class Most(msgspec.Struct, frozen=True):
    """What one turn may take before it is interrupted; None: any amount."""

    usd: float | None = None
    tokens: float | None = None


class Account:
    """One turn. `report` its figures as they become known, late ones too; each is the whole turn so far."""

    def __init__(self, governor: Governor, call: CallRecord, reserved: Amount, most: Most, *, priced: bool) -> None:
        self.call, self.reserved, self.most, self.priced = call, reserved, most, priced
        self.is_open, self.is_cut = True, False
        self.written: CallRecord | None = None  # as the journal has it
        self._governor = governor

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
        """What the turn has taken until now, as far as its provider tells. Not final: a price may follow."""
        self._governor.hear(self, usage, is_final=is_final, estimated=estimated)

    def end(self, reason: str, seconds: float) -> None:
        """Note how a turn of the call ended; it is kept with the next figure, or when the call is settled."""
        self.call = msgspec.structs.replace(self.call, reason=reason, seconds=self.call.seconds + seconds)

    @property
    def committed(self) -> Amount:
        """What others must leave to it."""
        return self.amount.at_least(self.reserved)


class Governor:
    """Keeps a run within its caps and its providers' limits.

    `tell` says something to the person. `open` connects it with the journal, which keeps what a kill must not lose.
    `clock` is the wall clock.
    """

    def __init__(
        self,
        caps: Caps | None = None,
        *,
        on_limit: OnLimit = "wait",
        run: str = "",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self.caps, self.on_limit = caps or Caps(), on_limit
        self._run, self._clock, self._sleep, self._tell = run, clock, sleep, tell
        self._facts: Facts | None = None
        self._settled = Amount()
        self._dearest: dict[str, Amount] = {}
        self._finished: dict[str, Amount] = {}  # the most expensive turn of each role that was not interrupted
        self._rates: dict[str, float] = {}  # by provider: dollars for each weighted token
        self._live: list[Account] = []
        self._changed = asyncio.Event()
        self._parked: dict[str, float] = {}
        self._waits: dict[str, float] = {}  # of providers that do not say when they serve again
        self._watch = _Stopwatch(clock)
        self._said: set[str] = set()

    def open(self, facts: Facts, *, before: Amount | None = None) -> None:
        """Take up what earlier processes have spent, and keep from now on what this one spends.

        `before`: what a run of an older version has spent, which kept it elsewhere. Raises JournalError.
        """
        self._facts = facts
        if before and before != Amount() and not any(True for _ in read_calls(facts)):
            write_call(facts, CallRecord(amount=before))
        end_killed_calls(facts)
        past = read_past(facts)
        self._settled += past.spent.amount
        self._watch.add(past.spent.seconds)
        self._parked = {**past.parked, **self._parked}
        for known in (self._dearest, self._finished):
            known.update({role: amount.at_least(known.get(role, Amount())) for role, amount in past.dearest.items()})

    # money and time ----------------------------------------------------------------------------------------

    @property
    def spent(self) -> Spent:
        """What the run has spent, with the figures of the turns under way."""
        total = sum((account.amount for account in self._live), self._settled)
        return Spent(total.usd, total.input_tokens, total.output_tokens, self._watch.seconds, total.unpriced)

    @asynccontextmanager
    async def turn(
        self,
        role: str | None = None,
        *,
        priced: bool = True,
        provider: str = "",
        first: Usage | None = None,
        **about: Unpack[About],
    ) -> AsyncGenerator[Account]:
        """Begin a turn when it may, and settle it at its end, however it ends. `about` is kept with it.

        `first` estimates what it takes at least: that counts where Atomic is killed before the agent tells a figure.

        Raises:
            CapReached: a cap is reached, and nobody works whose end could change that.
            Parked: the provider does not serve, and the run is not to wait.
        """
        await self._until_served(provider)
        call = CallRecord(id=uuid4().hex[:12], role=role, provider=provider, **about)
        if first is not None:
            amount = self._amount(call, first, priced=priced, is_final=False)
            call = msgspec.structs.replace(call, amount=amount, estimated=True)
        account = await self._admitted(call, priced=priced)
        try:
            yield account
        finally:
            self._settle(account)

    def hear(self, account: Account, usage: Usage, *, is_final: bool = True, estimated: bool = False) -> None:
        """Take a figure of a turn; also one that comes after its end."""
        amount = self._amount(account.call, usage, priced=account.priced, is_final=is_final)
        late = amount - account.amount
        if not account.is_open:
            self._settled += late
        reason = account.call.reason if is_final else ""
        account.call = msgspec.structs.replace(
            account.call, usage=usage, amount=amount, estimated=estimated, reason=reason
        )
        self._note_dearest(account)
        self._write_if_possible(account)
        if is_final and estimated:
            self._say_estimated(account.call.provider or "the agent")
        elif is_final:
            self._say_unpriced(amount.unpriced > 0)
        self._changed.set()

    def _amount(self, call: CallRecord, usage: Usage, *, priced: bool, is_final: bool) -> Amount:
        """What a figure comes to; dollars that an agent tells only at the end of a turn are estimated until then."""
        amount, weight = amount_of(usage, priced=priced), weighted_tokens(usage)
        provider = call.provider or ""
        if is_final and not amount.unpriced and weight:
            self._rates[provider] = max(amount.usd / weight, self._rates.get(provider, 0.0))
        if is_final or not priced or not amount.unpriced:
            return amount
        estimate = weight * self._rates.get(provider, DOLLARS_PER_TOKEN)
        return msgspec.structs.replace(amount, usd=estimate, unpriced=0)

    async def _admitted(self, call: CallRecord, *, priced: bool) -> Account:
        role = call.role or ""
        while True:
            expected = self._dearest.get(role) or _dearest_of(self._dearest.values())
            committed = sum((account.committed for account in self._live), self._settled)
            reached = self._reached(committed)
            if reached is None and (not self._live or self._reached(committed + expected, beyond=True) is None):
                account = Account(self, call, expected, self._most(role, committed), priced=priced)
                self._write(account)
                self._live.append(account)
                self._watch.work(1)
                return account
            if not self._live:
                assert reached is not None
                raise reached
            self._changed.clear()
            await self._changed.wait()

    # turns that take too much ------------------------------------------------------------------------------

    def _most(self, role: str, committed: Amount) -> Most:
        """What a turn may take that begins now: what is left, and twice the most expensive turn of its role on top.

        Where the role has no finished turn, as much on top as is left, or twice the most expensive of any role.
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
        return Most(*found)

    def cut_for(self, account: Account) -> CapReached | None:
        """The cap for which a turn must be interrupted now."""
        caps, most, total = self.caps, account.most, self.spent
        found = (
            ("max_cost", caps.max_cost, most.usd, self._dollars(account.amount), self._dollars(total.amount)),
            ("max_tokens", caps.max_tokens, most.tokens, account.amount.tokens, total.tokens),
            ("max_time", caps.max_time, self._time_to_cut, total.seconds, total.seconds),
        )
        for kind, limit, bound, taken, spent in found:
            if limit is not None and bound is not None and taken > bound:
                return CapReached(kind, limit, spent, run=self._run, cut="turn")
        return None

    @property
    def _time_to_cut(self) -> float | None:
        return None if self.caps.max_time is None else self.caps.max_time + self.caps.grace_seconds

    @property
    def seconds_to_cut(self) -> float | None:
        """How long the turns at work may still take by `--max-time`; None: any time."""
        end = self._time_to_cut
        return None if end is None else max(0.0, end - self._watch.seconds) + 0.001  # then it is beyond, not at it

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncGenerator[None]:
        """Interrupt what is done inside, and is no turn, when `--max-time` and its grace are over.

        Raises CapReached then; it names `what` was interrupted.
        """
        limit = asyncio.timeout(self.seconds_to_cut)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired() or self.caps.max_time is None:
                raise
            raise CapReached("max_time", self.caps.max_time, self._watch.seconds, run=self._run, cut=what) from None

    def _dollars(self, amount: Amount) -> float:
        """Dollars, with tokens without a price where no other cap counts them."""
        return amount.usd + (amount.unpriced / TOKENS_PER_DOLLAR if self.caps.max_tokens is None else 0.0)

    def _settle(self, account: Account) -> None:
        account.is_open = False
        if not account.is_cut:
            known = self._finished.get(account.role, Amount())
            self._finished[account.role] = account.amount.at_least(known)
        self._live.remove(account)
        self._settled += account.amount
        self._watch.work(-1)
        self._changed.set()
        self._write_if_possible(account)

    def _reached(self, amount: Amount, *, beyond: bool = False) -> CapReached | None:
        """The cap that an amount reaches, or goes beyond."""
        caps = self.caps
        usd, note = self._dollars(amount), ""
        if caps.max_tokens is None and amount.unpriced:
            note = f" ({amount.unpriced:,} tokens without a price count as ${amount.unpriced / TOKENS_PER_DOLLAR:.2f})"
        found = (
            ("max_cost", caps.max_cost, usd, note),
            ("max_tokens", caps.max_tokens, amount.tokens, ""),
            ("max_time", caps.max_time, self._watch.seconds, ""),
        )
        for kind, limit, spent, words in found:
            if limit is not None and (spent > limit if beyond else spent >= limit):
                return CapReached(kind, limit, spent, run=self._run, note=words)
        return None

    def _note_dearest(self, account: Account) -> None:
        self._dearest[account.role] = account.amount.at_least(self._dearest.get(account.role, Amount()))

    def _write(self, account: Account) -> None:
        if self._facts is None or account.call == account.written:
            return
        worked = round(self._watch.seconds, 3)
        write_call(self._facts, msgspec.structs.replace(account.call, worked=worked))
        account.written = account.call

    def _write_if_possible(self, account: Account) -> None:
        """Write what a turn took. Where that fails its work is not lost for it: the next turn cannot begin."""
        with suppress(JournalError, RunOwnedError):
            self._write(account)

    def _say_unpriced(self, is_unpriced: bool) -> None:
        cost, tokens = self.caps.max_cost, self.caps.max_tokens
        if not is_unpriced or cost is None:
            return
        if tokens is not None:
            self._say(f"the agent does not tell what its turns cost: --max-tokens {tokens:,} counts, not --max-cost")
        else:
            kept = int(cost * TOKENS_PER_DOLLAR)
            self._say(
                f"the agent does not tell what its turns cost: --max-cost {cost:g} is kept as {kept:,} tokens"
                " (--max-tokens N says how many you want)"
            )

    def _say_estimated(self, provider: str) -> None:
        if self.caps.max_cost is not None or self.caps.max_tokens is not None:
            self._say(
                f"{provider} tells neither tokens nor prices: the caps count an estimate,"
                f" one token for {CHARACTERS_PER_TOKEN} characters of prompt, answer and tool calls"
            )
        self._say_unpriced(True)

    def _say(self, text: str) -> None:
        if text not in self._said and self._tell is not None:
            self._tell(text)
        self._said.add(text)

    # pauses ------------------------------------------------------------------------------------------------

    @contextmanager
    def resting(self) -> Generator[None]:
        """While a person is waited for, and nobody works, no time is spent."""
        self._watch.rest(1)
        try:
            yield
        finally:
            self._watch.rest(-1)

    @contextmanager
    def asking(self) -> Generator[None]:
        """While the agent of a turn waits for a person, that turn is not at work."""
        self._watch.work(-1)
        try:
            yield
        finally:
            self._watch.work(1)

    def stop(self) -> None:
        """The run is over, for now: keep the seconds that it took. Raises JournalError."""
        self._watch.stop()
        if self._facts is not None:
            self._facts.set(WORKED, round(self._watch.seconds, 3))

    # providers that do not serve ---------------------------------------------------------------------------

    @property
    def parked_until(self) -> float | None:
        """When the last of the limited providers serves again, seconds since 1970; None if all serve."""
        now = self._clock()
        return max((until for until in self._parked.values() if until > now), default=None)

    @parked_until.setter
    def parked_until(self, until: float | None) -> None:
        """As `session.json` says; whoever resumes earlier waits too."""
        if until is not None and not self._parked:
            self._parked[""] = until

    def park(self, reset_at: datetime | float | None, provider: str = "") -> float:
        """A provider does not serve until then; when it will be tried again, seconds since 1970."""
        now = self._clock()
        told = reset_at.timestamp() if isinstance(reset_at, datetime) else reset_at
        if told is not None and now < told <= now + LONGEST_RESET:
            self._waits.pop(provider, None)
            until = told
        else:
            wait = self._waits[provider] = min(2 * self._waits.get(provider, FIRST_WAIT / 2), LONGEST_WAIT)
            until = now + wait
        self._parked[provider] = until
        if self._facts is not None:
            self._facts.set(PARKED, self._parked)
        return until

    def is_parked(self, provider: str) -> bool:
        return self._clock() < self._until(provider)

    async def provider_for(
        self,
        preferred: str,
        others: Sequence[str] = (),
        usable: Callable[[str], Awaitable[bool]] | None = None,
    ) -> str:
        """Who takes the next turn: the preferred provider, or with `switch` another that serves; waits if it must.

        `others` are those that are configured, in the order of preference. Raises Parked with `--on-limit stop`.
        """
        if not self.is_parked(preferred):
            return preferred
        if self.on_limit == "switch":
            for name in others:
                if name != preferred and not self.is_parked(name) and (usable is None or await usable(name)):
                    self._say(f"{preferred} has reached its usage limit: continuing with {name}")
                    return name
            known = [name for name in (preferred, *others) if name == preferred or name in self._parked]
            preferred = min(known, key=self._until)
        await self._until_served(preferred)
        return preferred

    def _until(self, provider: str) -> float:
        return max(self._parked.get(provider, -math.inf), self._parked.get("", -math.inf))

    async def _until_served(self, provider: str) -> None:
        if not self.is_parked(provider):
            return
        if self.on_limit == "stop":
            raise Parked(provider, self._until(provider), run=self._run)
        self._say(
            f"{provider or 'the provider'} has reached its usage limit: waiting until {_at(self._until(provider))}"
        )
        from random import uniform  # few runs ever wait

        late = uniform(0.0, LATE_SECONDS)
        with self.resting():
            while (left := self._until(provider) + late - self._clock()) > 0:
                await self._sleep(min(left, LOOK_SECONDS))


class _Stopwatch:
    """Counts the seconds of work: it stands still while somebody rests and no turn is under way."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._before, self._clock = 0.0, clock
        self._since: float | None = clock()
        self._rests = self._turns = 0

    @property
    def seconds(self) -> float:
        # A clock that was set back must not give time back.
        return self._before + (0.0 if self._since is None else max(0.0, self._clock() - self._since))

    def add(self, seconds: float) -> None:
        """Count what earlier processes took, too."""
        self._before += seconds

    def work(self, change: int) -> None:
        self._turns += change
        self._turn()

    def rest(self, change: int) -> None:
        self._rests += change
        self._turn()

    def stop(self) -> None:
        self._before, self._since = self.seconds, None

    def _turn(self) -> None:
        """Stop or go on, by who works and who rests."""
        if self._rests and not self._turns:
            self.stop()
        elif self._since is None:
            self._since = self._clock()


def _dearest_of(amounts: Iterable[Amount]) -> Amount:
    dearest = Amount()
    for amount in amounts:
        dearest = dearest.at_least(amount)
    return dearest


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.01 or not value else f"${value:.4f}"


def _tokens(value: float) -> str:
    return f"{int(value):,} tokens"


_SHOWN: Mapping[str, Callable[[float], str]] = {"max_cost": _dollars, "max_tokens": _tokens, "max_time": duration}


def _argument(kind: str, value: float) -> str:
    """A number that somebody would type for a cap: one or two digits, rounded up."""
    if kind == "max_time":
        return duration(math.ceil(value))
    step = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    rounded = math.ceil(value / step - 1e-9) * step
    return str(math.ceil(rounded)) if kind == "max_tokens" else f"{rounded:.10g}"


def _at(when: float) -> str:
    return datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
