"""Random workflow functions as data, and the machine that runs them.

`execute` is the only code that knows what a statement means. It runs in two worlds: in
Atomic (`Recorded`), and in plain asyncio (`Plain`), where results are futures that a loop
sets in the order of the journal.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import msgspec
from hypothesis import reject
from hypothesis import strategies as st

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.function_run import FunctionRun
from atomic.graph.engine.function_state import FunctionScope
from atomic.graph.engine.function_step import CURRENT
from atomic.graph.engine.journal import EndedBody, History, Row, RowKind, StepBody, decode_body, encode_row
from atomic.workflows import Failed, Flow, Retry, StepError, current_step, step, workflow

# Statements. A block is a tuple of them.


@dataclass(frozen=True)
class Call:
    """Call a step, and add its result to the log. Without an argument it is how long the log is."""

    step: str
    arg: int | None


@dataclass(frozen=True)
class Ask:
    """Ask a question, and add the answer to the log."""


@dataclass(frozen=True)
class Together:
    """Run blocks in tasks: `gather`, `settled` (its exceptions are results), `group`,
    `first` (the others are cancelled), `first_kept` or `as_completed`.
    """

    how: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Around:
    """Run a block inside `timeout`, `try`, `finally`, `child` or `loop`."""

    how: str
    block: Block


@dataclass(frozen=True)
class Branch:
    """Take a way by the last number in the log."""

    even: Block
    odd: Block


@dataclass(frozen=True)
class Map:
    step: str
    items: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class Small:
    """`compensate`, `raise`, `spin`, `state`, or `background`: a task that is not awaited."""

    what: str
    arg: int


@dataclass(frozen=True)
class Handshake:
    """Start a helper that waits for an event, which is set between two steps."""

    first: Call
    second: Call


Statement = Call | Ask | Together | Around | Branch | Map | Small | Handshake
Block = tuple[Statement, ...]


@dataclass(frozen=True)
class Program:
    block: Block
    fails: bool = False  # it returns Failed(…)


QUICK = ("fast", "fast_fail", "odd")
SLOW = ("slow", "slow", "slow", "fail", "flaky", "stubborn", "cleanup", "bad_cleanup")
RETRIED = ("patient",)

_calls = st.builds(Call, st.sampled_from((*QUICK, *SLOW, *SLOW, *RETRIED)), st.sampled_from((None, 0, 1, 1)))
_leaves: st.SearchStrategy[Statement] = st.one_of(
    _calls,
    _calls,
    _calls,
    st.builds(Ask),
    st.builds(
        Map, st.sampled_from(("slow", "fail", "fast")), st.lists(st.integers(0, 1), max_size=3).map(tuple),
        st.integers(0, 2),
    ),
    st.builds(Small, st.sampled_from(("compensate", "raise", "spin", "state", "background")), st.integers(0, 3)),
    st.builds(Handshake, _calls, _calls),
)  # fmt: skip


def _deeper(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    block = st.lists(inner, min_size=1, max_size=3).map(tuple)
    blocks = st.lists(block, min_size=2, max_size=3).map(tuple)
    how = st.sampled_from(("gather", "settled", "group", "first", "first_kept", "as_completed"))
    around = st.sampled_from(("timeout", "timeout", "try", "try", "finally", "child", "loop"))
    return st.one_of(
        st.builds(Together, how, blocks), st.builds(Together, how, blocks), st.builds(Around, around, block),
        st.builds(Branch, block, block),
    )  # fmt: skip


programs: st.SearchStrategy[Program] = st.builds(
    Program,
    st.lists(st.recursive(_leaves, _deeper, max_leaves=8), min_size=1, max_size=5).map(tuple),
    st.sampled_from((False, False, False, True)),
)


class OddError(Exception):
    """An exception that cannot be made again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


Key = tuple[str, str, int]  # of a call: the step, its argument, and how many such calls came before
INSIDE: ContextVar[tuple[int, ...]] = ContextVar("inside", default=())  # numbers of the timers around a call


class World(Protocol):
    """What statements need from where they run."""

    log: list[Any]
    timers: dict[int, asyncio.Timeout]

    def call(self, name: str, arg: int) -> Awaitable[Any]: ...

    def ask(self) -> Awaitable[Any]: ...

    def child(self, number: int, block: Block) -> Awaitable[Any]: ...

    def compensate(self, arg: int) -> None: ...

    def output(self, name: str) -> Any: ...


async def execute(world: World, block: Block) -> None:
    for statement in block:
        await _execute(world, statement)


async def _execute(world: World, statement: Statement) -> None:
    log = world.log
    match statement:
        case Call(name, arg):
            log.append(await world.call(name, len(log) if arg is None else arg))
        case Ask():
            log.append(await world.ask())
        case Branch(even, odd):
            numbers = [one for one in log if isinstance(one, int)]
            await execute(world, odd if numbers and numbers[-1] % 2 else even)
        case Map(name, items, width):
            results = await Flow.map(cast("Any", None), lambda n: world.call(name, n), items, max_concurrency=width)
            log.extend(results)
        case Handshake(first, second):
            await _shake_hands(world, first, second)
        case Small(what, arg):
            await _do_small(world, what, arg)
        case Around(how, inner):
            await _execute_around(world, how, inner)
        case Together(how, blocks):
            await _execute_together(world, how, blocks)


async def _shake_hands(world: World, first: Call, second: Call) -> None:
    event = asyncio.Event()

    async def help_out() -> None:
        await event.wait()
        world.log.append("helped")

    helper = asyncio.create_task(help_out())
    try:
        await _execute(world, first)
        event.set()
        await _execute(world, second)
    finally:
        helper.cancel()


_background: set[asyncio.Task[Any]] = set()


async def _do_small(world: World, what: str, arg: int) -> None:
    match what:
        case "compensate":
            world.compensate(arg)
        case "raise":
            raise KeyError(f"code {arg}")
        case "spin":
            for _ in range(arg * 4):
                await asyncio.sleep(0)
            world.log.append("spun")
        case "state":
            world.log.append(("slow", world.output("slow")))
        case _:
            task = asyncio.create_task(_in_background(world, (Call("slow", arg), Call("fast", arg))))
            _background.add(task)
            task.add_done_callback(_background.discard)


async def _in_background(world: World, block: Block) -> None:
    INSIDE.set(())  # no timer cancels it
    await _quietly(world, block)


async def _quietly(world: World, block: Block) -> None:
    try:
        await execute(world, block)
    except Exception as error:
        world.log.append(describe(error))


async def _execute_around(world: World, how: str, block: Block) -> None:
    log = world.log
    match how:
        case "timeout":
            try:
                async with asyncio.timeout(3600) as limit:
                    number = len(world.timers)
                    world.timers[number] = limit
                    inside = INSIDE.set((*INSIDE.get(), number))
                    try:
                        await execute(world, block)
                    finally:
                        INSIDE.reset(inside)
            except TimeoutError:
                log.append("timed out")
        case "try":
            await _quietly(world, block)
        case "finally":
            try:
                await execute(world, block)
            finally:
                log.append("finally")
                log.append(await world.call("fast", 7))
        case "child":
            log.append(await world.child(len(log), block))
        case _:
            for _ in range(2):
                await execute(world, block)


async def _execute_together(world: World, how: str, blocks: Sequence[Block]) -> None:
    log = world.log
    if how == "group":
        async with asyncio.TaskGroup() as group:
            for block in blocks:
                group.create_task(execute(world, block))
        return
    tasks = [asyncio.create_task(execute(world, block)) for block in blocks]
    try:
        match how:
            case "gather":
                await asyncio.gather(*tasks)
            case "settled":
                log.append([str(describe(one)) for one in await asyncio.gather(*tasks, return_exceptions=True)])
            case "as_completed":
                for done in asyncio.as_completed(tasks):
                    await done
                    log.append("one")
            case _:
                finished, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                log.append([tasks.index(task) for task in tasks if task in finished])
                if how == "first":
                    for task in tasks:
                        task.cancel()
                if left:
                    await asyncio.wait(left)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    finally:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that asyncio says nothing


def describe(error: Any) -> Any:
    if isinstance(error, BaseExceptionGroup):
        return [describe(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
    return f"{type(error).__name__}: {error}"


# In Atomic.


@dataclass
class Outside:
    """What the steps meet, over all processes of a run."""

    choose: random.Random
    counter: int = 0
    begun: list[str] = field(default_factory=list[str])  # step ids, in the order in which they began
    fired: dict[Key, list[int]] = field(default_factory=dict[Key, list[int]])  # timers, by the calls inside them
    is_lost: bool = False  # a timer has expired and reached no call: no record says so
    flaky: set[str] = field(default_factory=set[str])  # steps that have failed once
    pending: list[asyncio.Future[None]] = field(default_factory=list[asyncio.Future[None]])
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def released(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending.append(future)
        self.changed.set()
        await future

    def next(self) -> int:
        self.counter += 1
        return self.counter

    def begin_process(self, recorded: Iterable[Key]) -> None:
        """Forget what a kill has undone: the timers of calls without a record."""
        kept = set(recorded)
        self.fired = {key: numbers for key, numbers in self.fired.items() if key in kept}
        self.pending.clear()
        self.changed = asyncio.Event()


outside = Outside(random.Random(0))  # replaced by each example


def _begin() -> str:
    context = current_step()
    assert context is not None
    outside.begun.append(context.step_id)
    return context.step_id


async def fast(n: int) -> int:
    _begin()
    return outside.next()


async def fast_fail(n: int) -> int:
    _begin()
    raise ValueError(f"{n} is refused")


async def odd(n: int) -> int:
    _begin()
    raise OddError("odd", "even")


async def slow(n: int) -> int:
    _begin()
    await outside.released()
    return outside.next()


async def fail(n: int) -> int:
    _begin()
    await outside.released()
    raise ValueError(f"{n} fails")


async def flaky(n: int) -> int:
    step_id = _begin()
    await outside.released()
    if step_id not in outside.flaky:
        outside.flaky.add(step_id)
        raise OSError(f"{n} at first")
    return outside.next()


async def stubborn(n: int) -> int:
    _begin()
    try:
        await outside.released()
    except asyncio.CancelledError:
        await outside.released()
    return outside.next()


async def cleanup(n: int) -> int:
    _begin()
    try:
        await outside.released()
    except asyncio.CancelledError:
        await outside.released()
        raise
    return outside.next()


async def bad_cleanup(n: int) -> int:
    _begin()
    try:
        await outside.released()
    except asyncio.CancelledError:
        raise ValueError("bad cleanup") from None
    return outside.next()


async def undo(n: int) -> int:
    _begin()
    await outside.released()
    if n == 2:
        raise ValueError("not undone")
    return outside.next()


STEPS: dict[str, Callable[[int], Awaitable[int]]] = {
    body.__name__: step(body)
    for body in (fast, fast_fail, odd, slow, fail, flaky, stubborn, cleanup, bad_cleanup, undo)
}
STEPS["patient"] = step(name="patient", retry=Retry(0, attempts=2))(flaky)


class Recorded:
    """A world whose calls are steps of a flow."""

    def __init__(self, flow: Flow, process: Process) -> None:
        self.log = process.log
        self.timers = process.timers
        self._flow = flow
        self._process = process

    async def call(self, name: str, arg: int) -> Any:
        with self._process.calling(name, str(arg)):
            return await STEPS[name](arg)

    async def ask(self) -> Any:
        with self._process.calling("ask", ""):
            return await self._flow.ask("Go on?")

    def child(self, number: int, block: Block) -> Awaitable[Any]:
        async def inner(flow: Flow) -> int:
            await execute(Recorded(flow, self._process), block)
            return number

        name = f"child{len(cast('FunctionScope', CURRENT.get()).names)}"
        return self._flow.run(workflow(name=name)(inner))

    def compensate(self, arg: int) -> None:
        self._flow.compensate(cast("Any", STEPS["undo"]), arg)

    def output(self, name: str) -> Any:
        return self._flow.state.outputs.get(name)


class Process:
    """One process of a run: the function, and who lets its steps finish."""

    def __init__(self, program: Program, name: str = "law") -> None:
        self.log: list[Any] = []
        self.at_end: list[Any] | None = None
        self.timers: dict[int, asyncio.Timeout] = {}
        self.flow_run: FunctionRun | None = None
        self._counts: dict[tuple[str, str], int] = {}
        self._open: dict[Key, tuple[asyncio.Task[Any], tuple[int, ...]]] = {}  # calls, and the timers around them

        async def law(flow: Flow) -> list[Any] | Failed:
            self.flow_run = cast("FunctionScope", CURRENT.get()).run
            try:
                await execute(Recorded(flow, self), program.block)
            finally:
                self.at_end = list(self.log)
            return Failed("done for", 1) if program.fails else self.at_end

        self.workflow = workflow(name=name)(law)

    @contextmanager
    def calling(self, name: str, text: str) -> Generator[None]:
        """Know of a call while it is open."""
        name = f"{cast('FunctionScope', CURRENT.get()).prefix}{name}"
        nth = self._counts[name, text] = self._counts.get((name, text), 0) + 1
        self._open[name, text, nth] = (cast("asyncio.Task[Any]", asyncio.current_task()), INSIDE.get())
        try:
            yield
        finally:
            del self._open[name, text, nth]

    async def drive(self, running: Awaitable[Any]) -> Any:
        """Let the steps finish in an order that the example chooses."""
        task = asyncio.ensure_future(running)
        task.add_done_callback(lambda _: outside.changed.set())
        choose = outside.choose
        while not task.done():
            for _ in range(choose.randrange(4)):
                await asyncio.sleep(1e-6)  # not a turn of the loop: the run sees that it is at rest
            outside.pending = [one for one in outside.pending if not one.done()]
            outside.changed.clear()
            if task.done():
                break
            if await self._fire(choose):
                continue
            if outside.pending:
                outside.pending.pop(choose.randrange(len(outside.pending))).set_result(None)
            else:
                await self._changed()
        outside.pending.clear()
        if outside.is_lost:
            reject()
        return await task

    async def _changed(self) -> None:
        """Wait for a step, or a record that only a timer can reach."""
        while not outside.changed.is_set() and not self._needs_timer():
            await asyncio.sleep(1e-3)

    def _needs_timer(self) -> bool:
        replay = None if self.flow_run is None else self.flow_run.replay
        return replay is not None and replay.to_cancel is not None and key_of(replay.to_cancel.body) in outside.fired

    async def _fire(self, choose: random.Random) -> bool:
        """Let a timer expire: in a replay that which has expired before."""
        if self.flow_run is None:
            return False
        replay = self.flow_run.replay
        if replay is not None and not replay.is_over:
            recorded = replay.to_cancel
            return recorded is not None and fire_next(self.timers, outside.fired.get(key_of(recorded.body), ()))
        inside = {number for _, numbers in self._open.values() for number in numbers}
        alive = [number for number in sorted(inside) if is_active(self.timers[number])]
        if not alive or not is_at_rest() or choose.random() < (0.8 if outside.pending else 0.5):
            return False
        await self._expire(choose.choice(alive))
        return True

    async def _expire(self, number: int) -> None:
        """Let a timer expire while the function waits, and look which calls it reaches."""
        calls = {key: task for key, (task, numbers) in self._open.items() if number in numbers}
        cancelled = {key: task.cancelling() for key, task in calls.items()}
        for key in calls:
            outside.fired.setdefault(key, []).append(number)
        self.timers[number].reschedule(0)
        await asyncio.sleep(1e-6)
        while not is_at_rest():
            await asyncio.sleep(1e-6)
        if all(key in self._open and task.cancelling() == cancelled[key] for key, task in calls.items()):
            outside.is_lost = True  # for example in a task group that has cancelled its tasks before


def is_at_rest() -> bool:
    """Return whether no task but the current one can run now.

    A timer that expires between two steps, or before the first, leaves no record that
    says so. A plain program, like a replay, could not repeat it.
    """
    loop: Any = asyncio.get_running_loop()
    return not loop._ready


def is_active(limit: asyncio.Timeout) -> bool:
    """Return whether a timeout can still expire."""
    return "[active]" in repr(limit)


def key_of(body: StepBody) -> Key:
    """Return the key of a recorded call."""
    assert body.call is not None
    text = "" if body.node_id.endswith("ask") else body.call.text
    return (body.node_id, text, body.call.nth)


def fire_next(timers: dict[int, asyncio.Timeout], numbers: Sequence[int]) -> bool:
    """Expire the next of these timers that is still active."""
    for number in numbers:
        limit = timers.get(number)
        if limit is not None and is_active(limit):
            limit.reschedule(0)
            return True
    return False


# In plain asyncio.


class Told:
    """A finished step, as the journal has it."""

    def __init__(self, body: StepBody) -> None:
        assert body.call is not None
        self.key = key_of(body)
        self.id = (body.node_id, body.n)
        self.status = body.status
        self.was_cancelled = body.call.was_cancelled
        self.is_lost = False
        self._cancellations = body.call.cancellations
        self.body = body

    @property
    def absorbed(self) -> int:
        """Return how many cancellations the step has seen."""
        return self._cancellations if self.status == RunStatus.CANCELLED or self.was_cancelled else 0

    @property
    def cancellations(self) -> int:
        """Return how often the program has cancelled the call."""
        return self.absorbed + self.is_lost


def told(rows: Sequence[Row]) -> list[Told]:
    """Return the finished steps that rows tell of, without those that ran again later."""
    found: list[Told] = []
    for row in rows:
        if row.kind == RowKind.ENDED and row is not rows[-1]:
            again = {tuple(key.rsplit("#", 1)) for key in decode_body(row, EndedBody).again or ()}
            kept: list[Told] = []
            for one in found:
                if (one.id[0], str(one.id[1])) not in again:
                    kept.append(one)
                elif one.status == RunStatus.COMPLETED:
                    one.is_lost = False
                    kept.append(one)
            found = kept
        if row.kind != RowKind.STEP:
            continue
        one = Told(decode_body(row, StepBody))
        if one.status == RunStatus.CANCELLED and one.was_cancelled:
            next(other for other in reversed(found) if other.id == one.id).is_lost = True
        else:
            found.append(one)
    return found


class _PlainCall:
    def __init__(self) -> None:
        self.future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self.task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._before = self.task.cancelling()
        self.cancellations = 0

    def note_cancellation(self) -> None:
        self.cancellations = self.task.cancelling() - self._before


class Plain:
    """A world whose calls are futures, which are set in the order of the journal."""

    def __init__(self, records: Sequence[Told], fired: Mapping[Key, Sequence[int]]) -> None:
        self.log: list[Any] = []
        self.timers: dict[int, asyncio.Timeout] = {}
        self.compensations: list[tuple[str, str]] = []
        self.outputs: dict[str, dict[str, Any]] = {}
        self.calls: dict[tuple[str, str, int], _PlainCall] = {}
        self._records = {record.key: record for record in records}
        self._order = records
        self._fired = fired
        self._counts: dict[tuple[str, str], int] = {}
        self._is_over = False

    async def step(self, prefix: str, name: str, text: str, outputs: dict[str, Any]) -> Any:
        if self._is_over:  # a program that continues after its cancellation would wait for ever
            raise asyncio.CancelledError
        nth = self._counts[f"{prefix}{name}", text] = self._counts.get((f"{prefix}{name}", text), 0) + 1
        key = (f"{prefix}{name}", text, nth)
        call = self.calls[key] = _PlainCall()
        record = self._records.get(key)
        while True:
            try:
                await call.future
                break
            except asyncio.CancelledError:
                call.note_cancellation()
                is_kept = (
                    not self._is_over
                    and record is not None
                    and (record.status == RunStatus.CANCELLED or call.cancellations <= record.absorbed)
                )
                if not is_kept:
                    raise
                call.future = asyncio.get_running_loop().create_future()
        assert record is not None
        if record.status == RunStatus.CANCELLED:
            raise asyncio.CancelledError
        if record.status == RunStatus.FAILED:
            raise self._failure(record)
        value = msgspec.msgpack.decode(record.body.update)["outputs"][name]
        outputs[name] = value
        return value

    def _failure(self, record: Told) -> Exception:
        error = record.body.error
        assert error is not None
        made: dict[str, type[Exception]] = {"ValueError": ValueError, "OSError": OSError}
        if error.kind in made:
            return made[error.kind](error.reason.removeprefix(f"{error.kind}: "))
        return StepError(record.body.node_id, error.kind, error.reason)

    async def run(self, program: Program) -> tuple[str, list[Any]]:
        """Return how the program ends, and the log, if its results come in that order."""
        task = asyncio.create_task(self._body(program))
        try:
            return await self._tell(task)
        finally:
            self._is_over = True

    async def _tell(self, task: asyncio.Task[tuple[str, list[Any]]]) -> tuple[str, list[Any]]:
        for record in self._order:
            await self._rest()
            call = self.calls.get(record.key)
            assert call is not None, f"{record.key} was recorded, but plain asyncio does not call it"
            while call.cancellations < record.cancellations and not task.done():
                before = call.cancellations
                numbers = self._fired.get(record.key, ())
                assert fire_next(self.timers, numbers), f"{record.key} was cancelled, but not in plain asyncio"
                await self._rest()
                assert call.cancellations > before, f"{record.key} was cancelled, but not by that timer"
            if not record.is_lost and not call.future.done():
                call.future.set_result(record)
        await self._rest()
        assert task.done(), f"it waits for {[key for key in self.calls if key not in self._records]}"
        return task.result()

    async def _rest(self) -> None:
        """Return when no task can go on."""
        loop: Any = asyncio.get_running_loop()
        await asyncio.sleep(0)
        while loop._ready:
            await asyncio.sleep(0)

    async def _body(self, program: Program) -> tuple[str, list[Any]]:
        scope = PlainScope(self, "", 1)
        how = "completed"
        try:
            await execute(scope, program.block)
        except (asyncio.CancelledError, Exception) as error:
            how = str(describe(error))
        log = list(self.log)
        if how == "completed" and program.fails:
            how = "failed for good"
        if how != "completed" and not how.startswith("CancelledError"):
            await self._end_what_is_left()
            while self.compensations:
                try:
                    prefix, text = self.compensations.pop()
                    await self.step(prefix, "undo", text, {})
                except Exception:  # the next one has to run
                    pass
        return how, log

    async def _end_what_is_left(self) -> None:
        """Cancel the calls that a function has left behind, even if their steps have
        finished: it had left before their turn.
        """
        left = {call.task for call in self.calls.values() if not call.future.done()}
        left.discard(cast("asyncio.Task[Any]", asyncio.current_task()))
        if left:
            self._is_over = True
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            self._is_over = False


class PlainScope:
    """One workflow in a plain world."""

    def __init__(self, plain: Plain, prefix: str, depth: int) -> None:
        self.log = plain.log
        self.timers = plain.timers
        self.outputs: dict[str, Any] = {}
        self._plain = plain
        self._prefix = prefix
        self._depth = depth

    def call(self, name: str, arg: int) -> Awaitable[Any]:
        return self._plain.step(self._prefix, name, str(arg), self.outputs)

    def ask(self) -> Awaitable[Any]:
        return self._plain.step(self._prefix, "ask", "", self.outputs)

    async def child(self, number: int, block: Block) -> Any:
        inner = PlainScope(self._plain, f"{self._prefix}child{self._depth}/", self._depth + 1)
        await execute(inner, block)
        return number

    def compensate(self, arg: int) -> None:
        self._plain.compensations.append((self._prefix, str(arg)))

    def output(self, name: str) -> Any:
        return self.outputs.get(name)


def rows_of(history: History) -> list[Row]:
    return [encode_row(RowKind.START, history.start), *history.rows]


# Edits of a program.

_sure_calls = st.builds(
    Call, st.sampled_from(("fast", "slow", "slow", "fast_fail", "flaky", "fail")), st.integers(0, 3)
)
_sure_leaves: st.SearchStrategy[Statement] = st.one_of(
    _sure_calls, _sure_calls, st.builds(Ask), st.builds(Map, st.just("slow"), st.just((4, 5)), st.just(2))
)


def _sure_deeper(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    block = st.lists(inner, min_size=1, max_size=3).map(tuple)
    blocks = st.lists(block, min_size=2, max_size=2).map(tuple)
    return st.one_of(
        st.builds(Together, st.just("settled"), blocks),
        st.builds(Around, st.sampled_from(("try", "loop", "child", "finally")), block),
    )


sure_blocks: st.SearchStrategy[Block] = st.lists(
    st.recursive(_sure_leaves, _sure_deeper, max_leaves=5), min_size=1, max_size=5
).map(tuple)


def edited(draw: st.DrawFn, block: Block) -> Block:
    """Insert, remove, swap, rename or change a statement, somewhere in a block."""
    statements = list(block)
    place = draw(st.integers(0, len(statements) - 1))
    one = statements[place]
    if isinstance(one, Around | Together) and draw(st.booleans()):
        if isinstance(one, Around):
            statements[place] = Around(one.how, edited(draw, one.block))
        else:
            statements[place] = Together(one.how, (edited(draw, one.blocks[0]), *one.blocks[1:]))
        return tuple(statements)
    match draw(st.sampled_from(("insert", "remove", "swap", "change", "last", "blocks"))):
        case "insert":
            statements.insert(place, draw(_sure_leaves))
        case "remove" if len(statements) > 1:
            del statements[place]
        case "swap":
            other = draw(st.integers(0, len(statements) - 1))
            statements[place], statements[other] = statements[other], statements[place]
        case "blocks" if isinstance(one, Together):
            statements[place] = Together(one.how, one.blocks[::-1])
        case "last":
            statements.append(draw(_sure_leaves))
        case _:
            statements[place] = draw(_sure_leaves)
    return tuple(statements)


@st.composite
def edits(draw: st.DrawFn) -> tuple[Program, Program]:
    """Return a program, and what an author has made of it."""
    block = draw(sure_blocks)
    changed = block
    for _ in range(draw(st.integers(1, 2))):
        changed = edited(draw, changed)
    return Program(block), Program(changed)
