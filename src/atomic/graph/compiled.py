"""A compiled graph: run it, stream it, resume it, look at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, cast, overload
from uuid import uuid4

import msgspec

from atomic.deferred import deferred
from atomic.errors import AtomicError, closest
from atomic.graph.continuity import check_name, check_order, check_reducers
from atomic.graph.control import Event, RunStatus, Suspend, status_of
from atomic.graph.edits import current_names
from atomic.graph.errors import NodeError, StateError, StoppedError
from atomic.graph.journal import (
    AnsweredBody,
    EndedBody,
    History,
    Journal,
    JournalLike,
    ResumedBody,
    Row,
    RowKind,
    RunLog,
    StartBody,
    encode_row,
    opened,
)
from atomic.graph.migration import migrated_row
from atomic.graph.past import Past, jumps_of
from atomic.graph.pen import Pen
from atomic.graph.replay import first_values
from atomic.graph.restore import look, restore_token
from atomic.graph.run import Place, Run, Step, error_body
from atomic.graph.state import State, StateT, encode_value
from atomic.graph.token import Token
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.builder import GraphOptions
    from atomic.graph.compile import Edge
    from atomic.graph.node import Block
    from atomic.graph.program import Program
else:
    GraphOptions = deferred("atomic.graph.builder", "GraphOptions")
    Edge = deferred("atomic.graph.compile", "Edge")
    Block = deferred("atomic.graph.node", "Block")
    Program = deferred("atomic.graph.program", "Program")

Input = Mapping[str, Any] | State
Answers = Mapping[str, str | Sequence[str]]
MODES = ("values", "updates", "events", "debug", "live", "result")


class RunResult(msgspec.Struct, Generic[StateT], frozen=True):
    """How a run ended. Only `completed` is success; `error` says why it is something else."""

    state: StateT
    status: RunStatus
    error: Exception | None
    steps: int
    questions: Sequence[Question]
    execution_id: str
    warnings: Sequence[Event] = ()
    codes: Sequence[str] = ()  # why it waits, one word each: those of `Suspend`
    remedies: Mapping[str, str] = {}  # by code: what a person adds to the command that resumes it


class StreamEvent(msgspec.Struct, frozen=True):
    """One piece of news: `values`, `updates`, `events` and `debug` come with each finished step, `live` at once.

    `result` is the last of all: the RunResult.
    """

    mode: str
    node_id: str
    data: Any


class CompiledGraph(Generic[StateT]):
    """A checked graph. It holds no state of a run, so it can be run any number of times at once."""

    def __init__(
        self, program: Program, options: GraphOptions, block: Block, edges: tuple[Edge, ...], start: str | None
    ) -> None:
        self.program, self.options, self.block, self.edges, self.start = program, options, block, edges, start

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def description(self) -> str:
        return self.options.description

    @property
    def state_type(self) -> type[StateT]:
        return self.program.spec.state_type

    @property
    def node_ids(self) -> tuple[str, ...]:
        """All nodes, in the order of reading; those of a subgraph as `outer/inner`."""
        from atomic.graph.draw import walk_ids

        return tuple(walk_ids(self))

    def mermaid(self) -> str:
        """The graph as Mermaid text."""
        from atomic.graph.mermaid import to_mermaid

        return to_mermaid(self)

    def draw(self, width: int = 100, *, signs: Mapping[str, str] = {}) -> str:
        """The graph as text that fits so many columns; `signs`, of one cell, stand in front of nodes that have one."""
        from atomic.graph.draw import to_text

        return to_text(self, width, signs=signs)

    def svg(self) -> str:
        """The graph as an SVG picture."""
        from atomic.graph.svg import to_svg

        return to_svg(self)

    # running -----------------------------------------------------------------------------------------------

    async def run(
        self,
        input: Input | None = None,
        *,
        deps: Any = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Run to the end. What nodes do never raises: it is in the result.

        Raises:
            StateError: the input does not fit the state; nothing has run.
            JournalError: the journal cannot be written, or has a run of that id.
        """
        return await self._begin(input, deps, journal, execution_id, model).to_end()

    @overload
    def stream(
        self,
        input: Input | None = None,
        *,
        modes: None = None,
        deps: Any = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def stream(
        self,
        input: Input | None = None,
        *,
        modes: Sequence[str] | str,
        deps: Any = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> AsyncIterator[StreamEvent]: ...

    def stream(
        self,
        input: Input | None = None,
        *,
        modes: Sequence[str] | str | None = None,
        deps: Any = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """Run step by step: each is given as it finishes. Closing the stream cancels the run."""
        read = _read_modes(modes)
        return _told(self._begin(input, deps, journal, execution_id, model), read)

    async def resume(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Go on with a run: what is recorded is not done again, what is not recorded is done.

        Raises:
            RunNotFoundError, RunOwnedError, JournalError: the run cannot be had.
            QuestionError: an answer to a question that is not open.
        """
        return await self._take_up(journal, execution_id, answers, deps, model).to_end()

    @overload
    def resume_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        modes: None = None,
        deps: Any = None,
        model: str | None = None,
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def resume_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        modes: Sequence[str] | str,
        deps: Any = None,
        model: str | None = None,
    ) -> AsyncIterator[StreamEvent]: ...

    def resume_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        modes: Sequence[str] | str | None = None,
        deps: Any = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """`resume`, step by step."""
        read = _read_modes(modes)
        return _told(self._take_up(journal, execution_id, answers, deps, model), read)

    def load(self, journal: JournalLike, execution_id: str, at: int | None = None) -> StateT:
        """The state after the `at`-th finished step, or the last one; open branches count with what they did.

        Nothing is run: no node, no condition.
        """
        with opened(journal) as (journal_read, _):
            past = self._past(journal_read.history(execution_id, at=at))
        try:
            return look(past, self.program, self.program.spec.start(first_values(past, self.program), execution_id))
        except StateError as error:
            raise _from_other_code(error) from error

    # beginnings --------------------------------------------------------------------------------------------

    def _begin(
        self, input: Input | None, deps: Any, journal: JournalLike | None, execution_id: str | None, model: str | None
    ) -> _Running[StateT]:
        run_id = execution_id or str(uuid4())
        values = self.program.spec.start(input, run_id)
        run = Run(run_id, deps, max_steps=self.options.max_steps)
        place = self._root(model)
        token = Token(run, place, self.program, values, pc=self.program.entry)
        if journal is not None:
            body = StartBody(
                run_id, self.options.name, time.time(), self.options.state_version,
                self.program.spec.reducer_identities(), values, model, shape=self.program.shape,
            )  # fmt: skip
            with opened(journal, is_new=True) as (opened_journal, keep):
                run.pen = Pen(opened_journal.create(run_id, encode_row(RowKind.START, body)))
                return _Running(token, close_journal=keep())
        return _Running(token)

    def _root(self, model: str | None) -> Place:
        return Place(model=model or self.options.model, names=(self.options.name,))

    def _take_up(
        self, journal: JournalLike, execution_id: str, answers: Answers | None, deps: Any, model: str | None
    ) -> _Running[StateT]:
        with opened(journal) as (opened_journal, keep):
            log = opened_journal.acquire(execution_id)
            try:
                running = self._restore(opened_journal, execution_id, log, answers, deps, model)
            except BaseException:
                log.release()
                raise
            running.close_journal = keep()
            return running

    def _restore(
        self,
        journal: Journal,
        execution_id: str,
        log: RunLog,
        answers: Answers | None,
        deps: Any,
        model: str | None,
    ) -> _Running[StateT]:
        past = self._past(journal.history(execution_id))
        finished = past.ended is not None and past.ended.status == RunStatus.COMPLETED
        if not finished and past.start.shape != self.program.shape:
            check_order(past, self._root(None), self.program)
        # Nothing is written before all is known to fit: a refused resume leaves the run as it was.
        rows = [*self._migrate(past), *_read_answers(past, answers or {})]
        run = Run(execution_id, deps, max_steps=self.options.max_steps, past=past)
        run.jumps = jumps_of(past)
        run.pen = Pen(log)
        token = self._restored(run, past, model or past.start.model)
        if not finished:
            rows.append(encode_row(RowKind.RESUMED, ResumedBody(time.time(), model)))
        for row in rows:
            run.pen.later(row)
        run.pen.flush()
        return _Running(token, finished=finished)

    @cached_property
    def _current_names(self) -> Callable[[str], str] | None:
        return current_names(self.program)

    def _past(self, history: History) -> Past:
        """A run's history, if it is this graph's. Raises JournalError, StateError."""
        past = Past(history, self._current_names)
        check_name(past, self.options.name, self.program.renamed)
        if past.state_version == self.options.state_version:
            check_reducers(past, self.program.spec)
        return past

    def _restored(self, run: Run, past: Past, model: str | None) -> Token:
        """The root token where the journal ends. Raises StateError where old data does not fit the state class."""
        run.counts, run.steps = past.counts, past.steps
        run.budget = max(0, run.max_steps - past.counted) if run.max_steps else -1
        try:
            values = self.program.spec.start(first_values(past, self.program), run.execution_id)
            return restore_token(past, run, self._root(model), self.program, values, trail=None)
        except StateError as error:
            raise _from_other_code(error) from error

    def _migrate(self, past: Past) -> list[Row]:
        version = self.options.state_version
        if past.state_version == version:
            return []
        row = migrated_row(past, self._root(None), self.program, self.options.migrate_state, version)
        past.read(row)
        return [row]


def _from_other_code(error: StateError) -> StateError:
    reason = f"{error.reason}; the run was recorded by other code: raise state_version and give migrate_state"
    return StateError(error.path, reason)


def _read_answers(past: Past, answers: Answers) -> list[Row]:
    """Take answers to open questions; the rows are still to be written. Raises QuestionError."""
    rows: list[Row] = []
    current = {past.current_id(name): _checked_answer(name, answer) for name, answer in answers.items()}
    for name, given in past.new_answers(current).items():
        asked = past.asked[name]
        body = AnsweredBody(asked.step_id, name, time.time(), given, past.scope_of_question(asked))
        rows.append(encode_row(RowKind.ANSWERED, body))
        past.answered(body)
    return rows


def _checked_answer(name: str, answer: Any) -> str | list[str]:
    """An answer as the journal keeps it. Raises AtomicError."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (list, tuple, set, frozenset)):
        given = list(cast("Iterable[Any]", answer))
        if all(isinstance(part, str) for part in given):
            return given
    raise AtomicError(f'The answer to "{name}" is {answer!r:.60}; give a text, or a list of texts')


class _Running(Generic[StateT]):
    """A run under way: walks the root token and writes the end, whatever that is."""

    def __init__(
        self, token: Token, *, finished: bool = False, close_journal: Callable[[], None] | None = None
    ) -> None:
        self.token, self.run = token, token.run
        self.close_journal = close_journal  # of a journal that was given as a path
        self._finished = finished
        self.result: RunResult[StateT] | None = None

    async def to_end(self) -> RunResult[StateT]:
        async with aclosing(self.steps()) as steps:
            async for _ in steps:
                pass
        return cast("RunResult[StateT]", self.result)

    async def steps(self) -> AsyncGenerator[Step[StateT], None]:
        """The finished steps, if the run listens; the result is there when they are over."""
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
            await self._cancelled()
            raise
        except BaseException:
            self._release()
            raise
        status = RunStatus.FAILED if error else status_of(self.token.suspended)
        self._close(status, error or _reason_of(self.token.suspended, status))

    async def _cancelled(self) -> None:
        try:
            await self.token.cancel()
        finally:
            self._close(RunStatus.CANCELLED, None)

    def _close(self, status: RunStatus, error: Exception | None, *, write: bool = True) -> None:
        pen = self.run.pen
        if pen is not None:
            try:
                if write:
                    body = error_body(error) if isinstance(error, NodeError) else None
                    reason = "" if error is None else str(error)
                    folded = None if status is RunStatus.COMPLETED else self._folded()
                    pen.now(encode_row(RowKind.ENDED, EndedBody(status, time.time(), reason, body, folded)))
            finally:
                self._release()
        questions = [suspend.question for suspend in self.token.suspended if suspend.question is not None]
        self.result = RunResult(
            self.token.seen_state(),
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
        """The fields that only their author's code can fold: newer code cannot, and reads them here."""
        values = {name: self.token.values[name] for name in self.token.spec.own_reducers()}
        try:
            return msgspec.Raw(encode_value(values, "state")) if values else None
        except StateError:  # a reducer may give what cannot be recorded; then older code is needed to go on
            return None

    def _release(self) -> None:
        if self.run.pen is not None:
            self.run.pen.close()
        if self.close_journal is not None:
            self.close_journal()


def _reason_of(suspended: Sequence[Suspend], status: RunStatus) -> Exception | None:
    """Why a run stopped without a question: blocked, or parked by a limit. Of several with one code it is the first."""
    reasons: dict[str, tuple[str, str]] = {}
    for suspend in suspended:
        if suspend.question is None:
            reasons.setdefault(suspend.code or suspend.reason, (suspend.node_id, suspend.reason))
    return StoppedError(tuple(reasons.values())) if reasons else None


# streams -----------------------------------------------------------------------------------------------------


def _read_modes(modes: Sequence[str] | str | None) -> Sequence[str] | None:
    """The modes of a stream; a text is one of them. Raises AtomicError."""
    modes = (modes,) if isinstance(modes, str) else modes
    for mode in modes or ():
        if mode not in MODES:
            near = closest(str(mode), MODES)
            hint = f' (did you mean "{near}"?)' if near else ""
            raise AtomicError(f'Unknown stream mode "{mode}"{hint}; there are {", ".join(MODES)}')
    return modes


async def _told(running: _Running[Any], modes: Sequence[str] | None) -> AsyncIterator[Any]:
    running.run.listening = True
    source: AsyncGenerator[Any, None] = _with_live(running) if modes and "live" in modes else running.steps()
    told = 0
    async with aclosing(source) as news:
        async for item in news:
            if modes is None:
                yield item
                continue
            for event in [*_warnings_of(running.run, told, modes), *_events_of(item, modes)]:
                yield event
            told = len(running.run.warnings)
    for event in _warnings_of(running.run, told, modes or ()):
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
                yield StreamEvent(mode, item.node_id, _debug_of(item))
            case _:
                pass


def _warnings_of(run: Run, told: int, modes: Sequence[str]) -> list[StreamEvent]:
    """What the engine itself has to say; it belongs to no step."""
    fresh = run.warnings[told:] if "events" in modes else ()
    return [StreamEvent("events", str(event.data["node"]), event) for event in fresh]


def _debug_of(step: Step[Any]) -> dict[str, Any]:
    error = None if step.error is None else str(step.error)
    return {
        "step_id": step.step_id, "status": str(step.status), "attempt": step.attempt, "seconds": step.seconds,
        "model": step.model, "error": error, "fields": sorted(step.update or ()),
    }  # fmt: skip


async def _with_live(running: _Running[Any]) -> AsyncGenerator[Step[Any] | StreamEvent, None]:
    """Steps and, between them, what happens inside of them: that needs a task beside the reader."""
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
