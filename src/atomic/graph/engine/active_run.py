"""A run in progress: it advances the root token, streams the steps and records the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.graph.engine.attempts import FAILURES, as_node_error, error_raised_by
from atomic.graph.engine.control import Blocked, Breakpoint, Event, Failed, RunStatus, Suspend, status_of
from atomic.graph.engine.errors import NodeError, StateError, StoppedError
from atomic.graph.engine.journal import EndedBody, RowKind, encode_row, error_from
from atomic.graph.engine.run import Run, Step, error_body
from atomic.graph.engine.state import StateT, encode_value
from atomic.graph.engine.token import Token
from atomic.questions import Question

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    ValueT = DefaultTypeVar("ValueT", default=Any)
else:
    ValueT = TypeVar("ValueT")

Mode = Literal["values", "updates", "events", "debug", "live", "result"]
MODES = ("values", "updates", "events", "debug", "live", "result")


class RunResult(msgspec.Struct, Generic[StateT, ValueT], frozen=True):
    """How a run ended.

    Only `completed` is success; otherwise `error` holds the reason.
    """

    if not TYPE_CHECKING:  # the second parameter has a default, which typing learns in Python 3.13

        def __class_getitem__(cls, item):
            return super().__class_getitem__(item if isinstance(item, tuple) else (item, Any))

    state: StateT
    status: RunStatus
    error: Exception | None
    steps: int
    questions: Sequence[Question]
    execution_id: str
    warnings: Sequence[Event] = ()
    codes: Sequence[str] = ()  # codes of the pauses, for programs
    remedies: Mapping[str, str] = {}  # by code: what to add to the command that resumes the run
    result: ValueT | Any = None  # what a function has returned, or a graph has made of its last state
    signals: Sequence[str] = ()  # names of the signals that it waits for
    wake_at: float | None = None  # Unix time when a paused run can continue by itself
    is_over: bool = False  # failed or blocked for good: a resume only reports this end again


class RunEnding(NamedTuple):
    """How a run of a graph ends."""

    status: RunStatus
    error: Exception | None = None
    result: Any = None
    is_over: bool = False


MakeResult = Callable[[Any], Any]


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream.

    `values`, `updates`, `events` and `debug` come with each finished step, `live`
    immediately. `result` is the last event and holds the RunResult.
    """

    mode: str
    node_id: str
    data: Any


class RunInProgress(Protocol):
    """What a stream needs of a run: of a graph, or of a workflow function."""

    @property
    def run(self) -> Run: ...

    @property
    def result(self) -> RunResult[Any] | None: ...

    def steps(self) -> AsyncGenerator[Step[Any], None]: ...


class ActiveRun(Generic[StateT]):
    """A run in progress: advances the root token and records the end."""

    def __init__(
        self,
        token: Token,
        closing: ExitStack | None = None,
        *,
        make_result: MakeResult | None = None,
        ended: EndedBody | None = None,
    ) -> None:
        self.token = token
        self.run = token.run
        self.run.root = token
        self._closing = closing  # gives up the journal
        self._make_result = make_result
        self._ended = ended  # the end that the journal has, if the run is over
        self.result: RunResult[StateT] | None = None

    async def to_end(self) -> RunResult[StateT]:
        async with aclosing(self.steps()) as steps:
            async for _ in steps:
                pass
        return cast("RunResult[StateT]", self.result)

    async def steps(self) -> AsyncGenerator[Step[StateT], None]:
        """Yield the finished steps if the run is streamed.

        `result` is set at the end.
        """
        error: NodeError | None = None
        if self._ended is not None:
            await self._end(self._end_again(self._ended), write=False)
            return
        self.run.begin_in_task()
        try:
            while (step := await self._advance()) is not None:
                for inner in self.run.take_inner_steps():
                    yield inner
                yield step
            for inner in self.run.take_inner_steps():
                yield inner
        except NodeError as failure:
            error = failure
        except (asyncio.CancelledError, GeneratorExit):
            try:
                await self.token.cancel()
            finally:
                await self._end(RunEnding(RunStatus.CANCELLED))
            raise
        except BaseException:
            try:
                await self.run.end_deps(None)
            finally:
                self._release()
            raise
        await self._end(self._ending(error))

    def _advance(self) -> Coroutine[Any, Any, Step[StateT] | None]:
        advancing = self.run.advancing = self.token.advance()
        return advancing

    def _ending(self, error: NodeError | None) -> RunEnding:
        """Return how the run ends now."""
        if self.run.end is not None:
            node_id, end = self.run.end
            return ending_for_good(node_id, end)
        status = RunStatus.FAILED if error else status_of(self.token.suspended)
        if status is not RunStatus.COMPLETED:
            return RunEnding(status, error or reason_of(self.token.suspended, status))
        return self._completed()

    def _completed(self) -> RunEnding:
        """Return the end with the result that the author's function makes of the state."""
        if self._make_result is None:
            outputs = self.token.values["outputs"]
            return RunEnding(RunStatus.COMPLETED, result=next(reversed(outputs.values()), None))
        try:
            made = self._make_result(self.token.visible_state())
        except FAILURES as error:  # the author's function; anything it raises fails the run
            failure = error_raised_by("result", "result", error)
            failure.__cause__ = error
            return RunEnding(RunStatus.FAILED, failure)
        if isinstance(made, (Failed, Blocked)):
            return ending_for_good("result", made)
        try:
            encode_value(made, "result")
        except StateError as error:
            return RunEnding(RunStatus.FAILED, as_node_error("result", error))
        return RunEnding(RunStatus.COMPLETED, result=made)

    def _end_again(self, ended: EndedBody) -> RunEnding:
        """Return the end of a run that is over."""
        if ended.status == RunStatus.COMPLETED:
            return self._completed()
        status = RunStatus(ended.status)
        node_id, _, reason = ended.reason.partition(": ")
        error: Exception = StoppedError(((node_id, reason),)) if ended.error is None else error_from(ended.error)
        return RunEnding(status, error, ended.result, is_over=True)

    async def _end(self, ending: RunEnding, *, write: bool = True) -> None:
        """End the agents of the run, then record its end."""
        try:
            await self.run.end_deps(ending.status)
        finally:
            self._close(ending, write=write)

    def _close(self, ending: RunEnding, *, write: bool = True) -> None:
        status, error, result, is_over = ending
        writer = self.run.writer
        if writer is not None:
            try:
                if write:
                    body = error_body(error) if isinstance(error, NodeError) else None
                    reason = "" if error is None else str(error)
                    folded = None if status is RunStatus.COMPLETED else self._folded()
                    packed = None if result is None else msgspec.Raw(encode_value(result, "result"))
                    pauses = () if is_over else self.token.suspended
                    ended = EndedBody(
                        status, time.time(), reason, body, folded, packed, is_over, wake_at=wake_at_of(pauses),
                        breakpoints=tuple(pause.key for pause in pauses if isinstance(pause, Breakpoint)),
                    )  # fmt: skip
                    writer.now(encode_row(RowKind.ENDED, ended))
            finally:
                self._release()
        pauses = () if is_over else self.token.suspended
        questions = [suspend.question for suspend in pauses if suspend.question is not None]
        self.result = RunResult(
            self.token.visible_state(),
            status,
            error,
            self.run.steps,
            questions,
            self.run.execution_id,
            tuple(self.run.warnings),
            tuple(suspend.code for suspend in pauses if suspend.code),
            {suspend.code: suspend.remedy for suspend in pauses if suspend.remedy},
            result,
            signals=signals_of(pauses),
            wake_at=wake_at_of(pauses),
            is_over=is_over,
        )

    def _folded(self) -> Any:
        """Return the fields that only the author's own reducers can fold.

        Newer code without these reducers reads the values here.
        """
        values = {name: self.token.values[name] for name in self.token.spec.own_reducers()}
        try:
            return msgspec.Raw(encode_value(values, "state")) if values else None
        except StateError:  # the value cannot be recorded; only the old code can continue
            return None

    def _release(self) -> None:
        if self._closing is not None:
            self._closing.close()


def ending_for_good(node_id: str, end: Failed | Blocked) -> RunEnding:
    """Return the end of a run that a node has ended with `Failed` or `Blocked`."""
    try:
        encode_value(end.value, "value")
    except StateError as error:
        return RunEnding(RunStatus.FAILED, as_node_error(node_id, error))
    if isinstance(end, Failed):
        return RunEnding(RunStatus.FAILED, NodeError(node_id, end.reason, kind="Failed"), end.value, is_over=True)
    return RunEnding(RunStatus.BLOCKED, StoppedError(((node_id, end.reason),)), end.value, is_over=True)


def reason_of(suspended: Sequence[Suspend], status: RunStatus) -> Exception | None:
    """Return why a run stopped without a question: blocked, or paused by a limit.

    Of several pauses with the same code, the first counts; each breakpoint does.
    """
    reasons: dict[str, tuple[str, str]] = {}
    for suspend in suspended:
        if suspend.question is None:
            key = suspend.reason if suspend.concerns_only_its_step else suspend.code or suspend.reason
            if isinstance(suspend, Breakpoint):
                key = suspend.key
            reasons.setdefault(key, (suspend.node_id, suspend.reason))
    return StoppedError(tuple(reasons.values())) if reasons else None


def signals_of(suspended: Sequence[Suspend]) -> tuple[str, ...]:
    """Return the names of the signals that pauses wait for."""
    return tuple(dict.fromkeys(pause.signal for pause in suspended if pause.signal))


def wake_at_of(suspended: Sequence[Suspend]) -> float | None:
    """Return the first time at which one of these pauses ends by itself."""
    return min((pause.wake_at for pause in suspended if pause.wake_at is not None), default=None)


def read_modes(modes: Sequence[Mode] | Mode | None) -> Sequence[Mode] | None:
    """Return the modes of a stream; a single text is one mode. Raise AtomicError."""
    modes = (modes,) if isinstance(modes, str) else modes
    for mode in modes or ():
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise AtomicError(f'Unknown stream mode "{mode}"{hint}; the modes are {", ".join(MODES)}')
    return modes


async def stream_of(running: RunInProgress, modes: Sequence[str] | None) -> AsyncIterator[Any]:
    """Run the workflow, and yield its events of these modes; without modes, its steps.

    Raises what the run raises.
    """
    running.run.listening = True
    source: AsyncGenerator[Any, None] = _with_live(running) if modes and "live" in modes else running.steps()
    reported = 0
    async with aclosing(source) as items:
        async for item in items:
            if modes is None:
                yield item
                continue
            for event in [*_warnings_of(running.run, reported, modes), *_events_of(item, modes)]:
                yield event
            reported = len(running.run.warnings)
    for event in _warnings_of(running.run, reported, modes or ()):
        yield event
    if modes and "result" in modes:
        yield StreamEvent("result", "", running.result)


def _events_of(item: Step[Any] | StreamEvent, modes: Sequence[str]) -> Iterable[StreamEvent]:
    if isinstance(item, StreamEvent):
        yield item
        return
    for mode in modes:
        match mode:
            case "values":
                yield StreamEvent(mode, item.node_id, item.state)
            case "updates" if item.update:
                yield StreamEvent(mode, item.node_id, item.update)
            case "events":
                for event in item.events:
                    yield StreamEvent(mode, item.node_id, event)
            case "debug":
                error = None if item.error is None else str(item.error)
                facts = {
                    "step_id": item.step_id, "status": str(item.status), "attempt": item.attempt,
                    "seconds": item.seconds, "model": item.model, "error": error, "fields": sorted(item.update or ()),
                }  # fmt: skip
                yield StreamEvent(mode, item.node_id, facts)
            case _:
                pass


def _warnings_of(run: Run, reported: int, modes: Sequence[str]) -> list[StreamEvent]:
    """Return the engine's own warnings, which belong to no step."""
    fresh = run.warnings[reported:] if "events" in modes else ()
    return [StreamEvent("events", str(event.data["node"]), event) for event in fresh]


async def _with_live(running: RunInProgress) -> AsyncGenerator[Step[Any] | StreamEvent, None]:
    """Yield steps and, between them, live events.

    Needs a second task next to the reader.
    """
    queue: asyncio.Queue[Step[Any] | StreamEvent | None] = asyncio.Queue()
    running.run.live = lambda node_id, event: queue.put_nowait(StreamEvent("live", node_id, event))
    running.run.live_step = queue.put_nowait

    async def walk() -> None:
        try:
            async with aclosing(running.steps()) as steps:
                async for step in steps:
                    queue.put_nowait(step)
        finally:
            queue.put_nowait(None)

    task = asyncio.get_running_loop().create_task(walk())
    try:
        while (item := await queue.get()) is not None:
            yield item
        await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
