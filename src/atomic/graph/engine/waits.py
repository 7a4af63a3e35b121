"""Waits of steps: for a signal, and for a time.

A wait keeps what a later attempt must know as a part of its step: when a timer ends,
and which signal it received. All waits of a run share one timer of the event loop,
which looks at the clock and at new signals and decides for each wait.

Without a host, a wait for a signal pauses the run at once, as a question does. With
`deps.park` also timers pause it, as soon as everything in the run only waits.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.text import local_time
from atomic.graph.engine.control import Event, Suspend, seconds_of
from atomic.graph.engine.errors import JournalError
from atomic.graph.engine.journal import PartBody, RowKind, SignalBody, encode_row
from atomic.graph.engine.sent_signals import OWN_PARTS, check_name, received_key, refused_key, wait_key
from atomic.graph.engine.state import encode_value

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.graph.engine.run import Run
    from atomic.graph.engine.token import Token

SIGNAL = "signal"  # codes of pauses
SLEEPING = "sleeping"
LOOK_SECONDS = 0.25  # between looks at new signals
CLOCK_SECONDS = 15.0  # between looks at the wall clock: a timer does not count time in suspend
SHORTEST_PARK = 60.0  # seconds; a run that would continue earlier stays
LONGEST_SLEEP = 36525 * 86400.0  # 100 years

Clock = Callable[[], float]


class _Decision:
    """The end of a wait that is not a signal."""


_OVER = _Decision()  # its time is over
_PARKED = _Decision()  # the run pauses


class Wait:
    """A step that waits: for a signal if it has a name, until `due` if that is set."""

    def __init__(
        self,
        ctx: StepContext,
        *,
        name: str = "",
        n: int = 0,
        due: float | None = None,
        ends: float | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self.ctx = ctx
        self.name = name
        self.n = n
        self.due = due  # Unix time
        self.ends = ends  # the same on the loop's clock, for a duration: the wall clock may be set back
        self.read = read
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def is_over(self, now: float) -> bool:
        if self.due is None:
            return False
        return now >= self.due or (self.ends is not None and asyncio.get_running_loop().time() >= self.ends)

    def pause(self, run: Run) -> Suspend:
        """Return the pause of a run that stops here."""
        if not self.name:
            assert self.due is not None
            reason = f"sleeps until {local_time(self.due, with_zone=True)}"
            return Suspend(reason, code=SLEEPING, wake_at=self.due)
        reason = f'waits for the signal "{self.name}"'
        if self.due is not None:
            reason += f" until {local_time(self.due, with_zone=True)}"
        reason += f' (to send it: journal.signal("{run.execution_id}", "{self.name}", data))'
        return Suspend(reason, code=SIGNAL, signal=self.name, wake_at=self.due)


class Waits:
    """The waits of one run, in the order in which they began."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open: dict[Wait, None] = {}  # an ordered set
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0  # the number of the last signal that was read
        self._pending: dict[str, deque[SignalBody]] = {}  # signals that no step has received, by name
        deps = run.deps
        self.clock: Clock = getattr(deps, "clock", time.time)
        self.parks = bool(getattr(deps, "park", False))
        self.stays = getattr(deps, "broker", None) is not None or bool(getattr(deps, "waits_for_signals", False))
        self._resting: Any = getattr(deps, "resting", nullcontext)  # the host does not count this time as work

    async def until_ended(self, wait: Wait, key: str, part: Any, *, is_noted: bool) -> Any:
        """Return what ended a wait.

        `part` is recorded under `key` before the step really waits, unless it is
        already. Raises Suspend if the run pauses here.
        """
        ctx = wait.ctx
        if ctx.over:
            raise AtomicError(f"{ctx.node_id}: the step is over and can no longer wait")
        if wait.name:
            await self._run.announce(ctx.step_id)
        self._open[wait] = None
        try:
            self._decide_first(wait)
            if not wait.ended.done():
                if not is_noted:
                    await ctx.note_part(key, encode_value(part, key))
                self._run.report_event(ctx.node_id, Event("waiting", {"signal": wait.name, "until": wait.due}))
                if wait.name and not self.stays and not wait.ended.done():
                    wait.ended.set_result(_PARKED)
                self._look_within(0.0 if self.parks else self._delay([wait], self.clock()))
            with ctx.resting(), self._resting():
                ended = await wait.ended
        finally:
            del self._open[wait]
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if ended is _PARKED:
            pause = wait.pause(self._run)
            ctx.hold(pause)
            raise pause
        return ended

    def drop(self, ctx: StepContext) -> None:
        """End the waits that a failed attempt of a step left behind."""
        for wait in self._open:
            if wait.ctx is ctx:
                wait.ended.cancel()

    def _look(self) -> None:
        """Decide about each wait, and come back when that can change."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._decide_all()
        now = self.clock()
        left = [wait for wait in self._open if not wait.ended.done()]
        if left and self.parks and self._may_park(left, now):
            for wait in left:
                wait.ended.set_result(_PARKED)
        elif left:
            self._look_within(self._delay(left, now))

    def _look_within(self, seconds: float) -> None:
        """Look at all waits at that time, or earlier."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._look)

    def _decide_first(self, wait: Wait) -> None:
        """Decide about a wait that begins. Others come first if they wait for the same
        signal.
        """
        if not wait.name:
            self._decide(wait, self.clock())
            return
        self._read_signals()
        if self._pending.get(wait.name):
            self._decide_all()
        else:
            self._decide(wait, self.clock())

    def _decide_all(self) -> None:
        now = self.clock()
        try:
            if any(wait.name for wait in self._open):
                self._read_signals()
            for wait in tuple(self._open):
                if wait.ctx.over:
                    wait.ended.cancel()  # a task that the step left running
                if not wait.ended.done():
                    self._decide(wait, now)
        except Exception as error:  # every waiting step must see that the journal failed
            for wait in self._open:
                if not wait.ended.done():
                    wait.ended.set_exception(error)

    def _delay(self, left: list[Wait], now: float) -> float:
        polls = self.parks or any(wait.name for wait in left)
        delay = LOOK_SECONDS if polls else CLOCK_SECONDS
        clock = asyncio.get_running_loop().time()
        for wait in left:
            if wait.due is not None:
                delay = min(delay, wait.due - now)
            if wait.ends is not None:
                delay = min(delay, wait.ends - clock)
        return max(delay, 0.0)

    def _read_signals(self) -> None:
        writer = self._run.writer
        assert writer is not None
        for signal in writer.new_signals():
            if signal.number <= self._last:
                continue  # a journal that was recovered returns its signals again
            self._last = signal.number
            if signal.number > self._run.received.get(signal.name, 0):
                self._pending.setdefault(signal.name, deque()).append(signal)

    def _decide(self, wait: Wait, now: float) -> None:
        is_over = wait.is_over(now)
        pending = self._pending.get(wait.name)
        while pending and not (is_over and wait.due is not None and pending[0].time > wait.due):
            signal = pending.popleft()
            data = msgspec.msgpack.decode(signal.data)
            try:
                read = data if wait.read is None else wait.read(data)
            except msgspec.ValidationError as error:
                self._take(wait, refused_key(wait.name, wait.n), signal, {"number": signal.number})
                reason = f'a signal "{wait.name}" does not fit and was dropped: {error}'
                self._run.warn(wait.ctx.node_id, reason)
                continue
            self._take(wait, received_key(wait.name, wait.n), signal, {"number": signal.number, "data": data})
            wait.ended.set_result(read)
            return
        if is_over:
            if wait.name:
                self._write(wait, received_key(wait.name, wait.n), {"number": None})
            wait.ended.set_result(_OVER)

    def _take(self, wait: Wait, key: str, signal: SignalBody, part: Mapping[str, Any]) -> None:
        """Record that a step has taken a signal, in the order in which signals are
        taken: a resume continues after the last one.
        """
        self._write(wait, key, part)
        self._run.received[signal.name] = signal.number

    def _write(self, wait: Wait, key: str, part: Mapping[str, Any]) -> None:
        packed = encode_value(part, key)
        wait.ctx.keep_part(key, packed)
        writer = self._run.writer
        assert writer is not None
        body = PartBody(wait.ctx.step_id, key, time.time(), msgspec.Raw(packed))
        writer.now(encode_row(RowKind.PART, body))

    def _may_park(self, left: list[Wait], now: float) -> bool:
        """Return whether everything in the run waits, and for at least a minute."""
        soonest = min((wait.due for wait in left if wait.due is not None), default=math.inf)
        if soonest - now < SHORTEST_PARK:
            return False
        steps = {wait.ctx.step_id for wait in left if not wait.ctx.is_at_work}
        return len(steps) >= self._count_steps()

    def _count_steps(self) -> int:
        """Return how many steps of the run work or wait now."""
        run = self._run
        if run.count_steps is not None:
            return run.count_steps()
        calls = [call for call in run.calls if not call.ctx.over]
        called = sum(1 if call.token is None else steps_of(call.token) for call in calls)
        called -= len({call.ctx.step_id for call in calls})  # these only wait for their graphs
        return called + (1 if run.root is None else steps_of(run.root))


def steps_of(token: Token) -> int:
    """Return how many steps at and below a token work or wait."""
    branches = token.open_branches
    if branches is None or not branches.is_working:
        return 1
    inner = [child for child in branches.members() if child.open_branches is not None]
    nested = sum(steps_of(child) - 1 for child in inner if cast("Any", child.open_branches).is_working)
    return branches.at_work + nested


async def wait_for_signal(ctx: StepContext, name: str, timeout: Any, returns: Any) -> Any:
    """Return the data of the next signal. See `NodeContext.wait_for`."""
    check_name(name)
    limit = None if timeout is None else _limit_of(name, timeout)
    run = ctx.shared
    if run.writer is None:
        raise JournalError(
            f'ctx.wait_for("{name}"): nothing can send a signal to a run without a journal; run it with journal='
        )

    read = _reader(name, returns)
    n = ctx.next_wait(name)
    taken = ctx.remembered(received_key(name, n))
    if taken is None:
        key = wait_key(name, n)
        noted = ctx.remembered(key)
        due = ends = None
        if limit is not None:
            known = None if noted is None else noted["until"]
            due, ends = _timer(run.waits.clock, limit, known)
        wait = Wait(ctx, name=name, n=n, due=due, ends=ends, read=read)
        ended = await run.waits.until_ended(wait, key, {"until": due}, is_noted=noted is not None)
        if ended is not _OVER:
            return ended
    elif taken["number"] is not None:
        try:
            return read(taken["data"])
        except msgspec.ValidationError as error:
            raise AtomicError(
                f'the step received the signal "{name}" before it was interrupted, and its data does not fit: {error}'
            ) from error
    raise TimeoutError(f'no signal "{name}" came in time')


async def sleep_for(ctx: StepContext, amounts: Mapping[str, float | None]) -> None:
    """Sleep for a duration. See `NodeContext.sleep`."""
    seconds = duration_of(amounts)
    n = ctx.next_wait("")
    if seconds == 0:
        await asyncio.sleep(0)
        return
    noted = ctx.remembered(_sleep_key(n))
    due, ends = _timer(ctx.shared.waits.clock, seconds, None if noted is None else noted["until"])
    wait = Wait(ctx, due=due, ends=ends)
    await ctx.shared.waits.until_ended(wait, _sleep_key(n), {"until": due}, is_noted=noted is not None)


async def sleep_until(ctx: StepContext, when: datetime) -> None:
    """Sleep until a time. See `NodeContext.sleep_until`."""
    due = time_of(when)
    n = ctx.next_wait("")
    noted = ctx.remembered(_sleep_key(n))
    if noted is not None:
        due = noted["until"]
    wait = Wait(ctx, due=due)
    await ctx.shared.waits.until_ended(wait, _sleep_key(n), {"until": due}, is_noted=noted is not None)


def duration_of(amounts: Mapping[str, Any]) -> float:
    """Return the sum of seconds, minutes, hours and days. Raise AtomicError."""
    given = {unit: amount for unit, amount in amounts.items() if amount is not None}
    said = ", ".join(f"{unit}={amount!r:.60}" for unit, amount in given.items())
    total = 0.0
    for amount in given.values():
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not math.isfinite(amount):
            raise AtomicError(f"sleep({said}): give numbers")
    if given:
        with suppress(OverflowError):
            total = timedelta(**given).total_seconds()
            if 0 <= total <= LONGEST_SLEEP:
                return total
        raise AtomicError(f"sleep({said}): give 0 to 36525 days")
    raise AtomicError("sleep() needs a duration: seconds=, minutes=, hours= or days=")


def time_of(when: Any) -> float:
    """Return the Unix time of a datetime with a time zone. Raise AtomicError."""
    if not isinstance(when, datetime):
        raise AtomicError(f"sleep_until({when!r:.60}): give a datetime with a time zone")
    if when.utcoffset() is None:
        raise AtomicError(
            f"sleep_until({when.isoformat()}): this time has no time zone; use datetime.now(UTC) to make it, or"
            " when.astimezone() if it is local time"
        )
    due = when.timestamp()
    if due - time.time() > LONGEST_SLEEP:
        raise AtomicError(f"sleep_until({when.isoformat()}): give a time in the next 36525 days")
    return due


def _reader(name: str, returns: Any) -> Callable[[Any], Any]:
    """Return the function that reads the data of a signal. Raise AtomicError."""
    try:
        msgspec.msgpack.Decoder(returns)
    except TypeError as error:
        raise AtomicError(f'ctx.wait_for("{name}"): returns={returns!r:.60} is not a type of data: {error}') from error

    def read(data: Any) -> Any:
        return data if returns is Any else msgspec.convert(data, returns)

    return read


def _sleep_key(n: int) -> str:
    return f"{OWN_PARTS}sleep#{n}"


def _limit_of(name: str, timeout: Any) -> float:
    """Return a timeout in seconds; 0 and less are over at once. Raise AtomicError."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout <= 0:
        return 0.0
    try:
        seconds = seconds_of(timeout)
    except ValueError as error:
        raise AtomicError(f'ctx.wait_for("{name}"): timeout {error}') from error
    if seconds > LONGEST_SLEEP:
        raise AtomicError(f'ctx.wait_for("{name}"): timeout is {timeout!r:.60}; give at most 36525 days, or None')
    return seconds


def _timer(clock: Clock, seconds: float, known: float | None) -> tuple[float, float]:
    """Return when a timer ends, on the wall clock and on the loop's clock.

    `known` is the recorded time. The rest is never longer than the whole: the wall clock
    may have been set back.
    """
    now = clock()
    due = now + seconds if known is None else min(known, now + seconds)
    return due, asyncio.get_running_loop().time() + due - now
