"""A run in progress: it advances the root token, streams the steps and records the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, Generic, cast

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.graph.engine.control import Event, RunStatus, Suspend, status_of
from atomic.graph.engine.errors import NodeError, StateError, StoppedError
from atomic.graph.engine.journal import EndedBody, RowKind, encode_row
from atomic.graph.engine.run import Run, Step, error_body
from atomic.graph.engine.state import StateT, encode_value
from atomic.graph.engine.token import Token
from atomic.questions import Question

MODES = ("values", "updates", "events", "debug", "live", "result")


class RunResult(msgspec.Struct, Generic[StateT], frozen=True):
    """How a run ended.

    Only `completed` is success; otherwise `error` holds the reason.
    """

    state: StateT
    status: RunStatus
    error: Exception | None
    steps: int
    questions: Sequence[Question]
    execution_id: str
    warnings: Sequence[Event] = ()
    codes: Sequence[str] = ()  # codes of the pauses, for programs
    remedies: Mapping[str, str] = {}  # by code: what to add to the command that resumes the run


class StreamEvent(msgspec.Struct, frozen=True):
    """One event of a stream.

    `values`, `updates`, `events` and `debug` come with each finished step, `live`
    immediately. `result` is the last event and holds the RunResult.
    """

    mode: str
    node_id: str
    data: Any


class ActiveRun(Generic[StateT]):
    """A run in progress: advances the root token and records the end."""

    def __init__(self, token: Token, closing: ExitStack | None = None, *, finished: bool = False) -> None:
        self.token = token
        self.run = token.run
        self._closing = closing  # gives up the journal
        self._finished = finished
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
        if self._finished:
            self._close(RunStatus.COMPLETED, None, write=False)
            return
        self.run.begin_in_task()
        try:
            while (step := await self.token.advance()) is not None:
                yield step
        except NodeError as failure:
            error = failure
        except (asyncio.CancelledError, GeneratorExit):
            try:
                await self.token.cancel()
            finally:
                self._close(RunStatus.CANCELLED, None)
            raise
        except BaseException:
            self._release()
            raise
        status = RunStatus.FAILED if error else status_of(self.token.suspended)
        self._close(status, error or _reason_of(self.token.suspended, status))

    def _close(self, status: RunStatus, error: Exception | None, *, write: bool = True) -> None:
        writer = self.run.writer
        if writer is not None:
            try:
                if write:
                    body = error_body(error) if isinstance(error, NodeError) else None
                    reason = "" if error is None else str(error)
                    folded = None if status is RunStatus.COMPLETED else self._folded()
                    writer.now(encode_row(RowKind.ENDED, EndedBody(status, time.time(), reason, body, folded)))
            finally:
                self._release()
        questions = [suspend.question for suspend in self.token.suspended if suspend.question is not None]
        self.result = RunResult(
            self.token.visible_state(),
            status,
            error,
            self.run.steps,
            questions,
            self.run.execution_id,
            tuple(self.run.warnings),
            tuple(suspend.code for suspend in self.token.suspended if suspend.code),
            {suspend.code: suspend.remedy for suspend in self.token.suspended if suspend.remedy},
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


def _reason_of(suspended: Sequence[Suspend], status: RunStatus) -> Exception | None:
    """Return why a run stopped without a question: blocked, or paused by a limit.

    Of several pauses with the same code, the first counts.
    """
    reasons: dict[str, tuple[str, str]] = {}
    for suspend in suspended:
        if suspend.question is None:
            reasons.setdefault(suspend.code or suspend.reason, (suspend.node_id, suspend.reason))
    return StoppedError(tuple(reasons.values())) if reasons else None


def read_modes(modes: Sequence[str] | str | None) -> Sequence[str] | None:
    """Return the modes of a stream; a single text is one mode. Raise AtomicError."""
    modes = (modes,) if isinstance(modes, str) else modes
    for mode in modes or ():
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise AtomicError(f'Unknown stream mode "{mode}"{hint}; the modes are {", ".join(MODES)}')
    return modes


async def stream_of(running: ActiveRun[Any], modes: Sequence[str] | None) -> AsyncIterator[Any]:
    """Run the graph, and yield its events of these modes; without modes, its steps.

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


async def _with_live(running: ActiveRun[Any]) -> AsyncGenerator[Step[Any] | StreamEvent, None]:
    """Yield steps and, between them, live events.

    Needs a second task next to the reader.
    """
    queue: asyncio.Queue[Step[Any] | StreamEvent | None] = asyncio.Queue()
    running.run.live = lambda node_id, event: queue.put_nowait(StreamEvent("live", node_id, event))

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
