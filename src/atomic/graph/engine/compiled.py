"""A compiled graph: run, stream, resume, load and draw it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, cast, overload
from uuid import uuid4

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.base.lazy_types import deferred
from atomic.graph.engine.code_changes import check_name, check_order, check_reducers, current_names, migrated_row
from atomic.graph.engine.control import Event, RunStatus, Suspend, status_of
from atomic.graph.engine.errors import NodeError, StateError, StoppedError
from atomic.graph.engine.history import RunHistory, jumps_of
from atomic.graph.engine.journal import (
    AnsweredBody,
    EndedBody,
    History,
    JournalLike,
    ResumedBody,
    Row,
    RowKind,
    StartBody,
    encode_row,
    open_journal,
)
from atomic.graph.engine.journal_writer import JournalWriter
from atomic.graph.engine.replay import first_values
from atomic.graph.engine.restore import recorded_state, restore_token
from atomic.graph.engine.run import Run, Scope, Step, error_body
from atomic.graph.engine.state import State, StateT, encode_value
from atomic.graph.engine.token import Token
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.builder import GraphOptions
    from atomic.graph.engine.compile import Edge
    from atomic.graph.engine.node import Block
    from atomic.graph.engine.program import Program
else:
    GraphOptions = deferred("atomic.graph.engine.builder", "GraphOptions")
    Edge = deferred("atomic.graph.engine.compile", "Edge")
    Block = deferred("atomic.graph.engine.node", "Block")
    Program = deferred("atomic.graph.engine.program", "Program")

Input = Mapping[str, Any] | State
Answers = Mapping[str, str | Sequence[str]]
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


class CompiledGraph(Generic[StateT]):
    """A checked graph. It holds no state of a run, so several runs can share it."""

    def __init__(
        self, program: Program, options: GraphOptions, block: Block, edges: tuple[Edge, ...], start: str | None
    ) -> None:
        self.program = program
        self.options = options
        self.block = block
        self.edges = edges
        self.start = start

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
        """Return all node ids in reading order.

        Those of a subgraph as `outer/inner`.
        """
        from atomic.graph.drawing.text import walk_ids

        return tuple(walk_ids(self))

    def mermaid(self) -> str:
        """Return the graph as Mermaid text."""
        from atomic.graph.drawing.mermaid import to_mermaid

        return to_mermaid(self)

    def draw(self, width: int = 100, *, signs: Mapping[str, str] = {}) -> str:
        """Return the graph as text of at most `width` columns.

        `signs` are single characters to show in front of nodes, by node id.
        """
        from atomic.graph.drawing.text import to_text

        return to_text(self, width, signs=signs)

    def svg(self) -> str:
        """Return the graph as an SVG drawing."""
        from atomic.graph.drawing.svg import to_svg

        return to_svg(self)

    async def run(
        self,
        input: Input | None = None,
        *,
        deps: Any = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Run the graph to its end.

        Failures of nodes are in the result and are not raised.

        Raises:
            StateError: The input does not fit the state. Nothing has run.
            JournalError: The journal cannot be written, or it already has a run with that id.
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
        """Run the graph and yield each step as it finishes.

        Closing the stream cancels the run.
        """
        read = _read_modes(modes)
        return _stream(self._begin(input, deps, journal, execution_id, model), read)

    async def resume(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Continue a run: do what is not recorded yet.

        Raises:
            RunNotFoundError, RunOwnedError, JournalError: The run cannot be opened.
            QuestionError: An answer belongs to no open question.
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
        """Continue a run like `resume` and yield each step as it finishes."""
        read = _read_modes(modes)
        return _stream(self._take_up(journal, execution_id, answers, deps, model), read)

    def load(self, journal: JournalLike, execution_id: str, at: int | None = None) -> StateT:
        """Return the state after finished step number `at`, or after the last one.

        Open branches count with what they did. No node and no condition runs.
        """
        with ExitStack() as closing:
            history = self._read_history(open_journal(journal, closing).history(execution_id, at=at))
        try:
            return recorded_state(
                history, self.program, self.program.spec.start(first_values(history, self.program), execution_id)
            )
        except StateError as error:
            raise _from_other_code(error) from error

    def _begin(
        self, input: Input | None, deps: Any, journal: JournalLike | None, execution_id: str | None, model: str | None
    ) -> _ActiveRun[StateT]:
        run_id = execution_id or str(uuid4())
        values = self.program.spec.start(input, run_id)
        run = Run(run_id, deps, max_steps=self.options.max_steps)
        scope = self._root(model)
        token = Token(run, scope, self.program, values, pc=self.program.entry)
        if journal is None:
            return _ActiveRun(token)
        body = StartBody(
            run_id, self.options.name, time.time(), self.options.state_version,
            self.program.spec.reducer_identities(), values, model, shape=self.program.shape,
        )  # fmt: skip
        with ExitStack() as closing:
            log = open_journal(journal, closing, is_new=True).create(run_id, encode_row(RowKind.START, body))
            closing.callback(log.release)
            run.writer = JournalWriter(log)
            return _ActiveRun(token, closing.pop_all())

    def _root(self, model: str | None) -> Scope:
        return Scope(model=model or self.options.model, names=(self.options.name,))

    def _take_up(
        self, journal: JournalLike, execution_id: str, answers: Answers | None, deps: Any, model: str | None
    ) -> _ActiveRun[StateT]:
        with ExitStack() as closing:
            opened = open_journal(journal, closing)
            log = opened.acquire(execution_id)
            closing.callback(log.release)
            history = self._read_history(opened.history(execution_id))
            finished = history.ended is not None and history.ended.status == RunStatus.COMPLETED
            if not finished and history.start.shape != self.program.shape:
                check_order(history, self._root(None), self.program)
            # Write nothing before everything is checked: a refused resume must not
            # change the run.
            rows = [*self._migrate(history), *_read_answers(history, answers or {})]
            run = Run(execution_id, deps, max_steps=self.options.max_steps, history=history)
            run.jumps = jumps_of(history)
            run.writer = JournalWriter(log)
            token = self._restored(run, history, model or history.start.model)
            if not finished:
                rows.append(encode_row(RowKind.RESUMED, ResumedBody(time.time(), model)))
            for row in rows:
                run.writer.later(row)
            run.writer.flush()
            return _ActiveRun(token, closing.pop_all(), finished=finished)

    @cached_property
    def _current_names(self) -> Callable[[str], str] | None:
        return current_names(self.program)

    def _read_history(self, recorded: History) -> RunHistory:
        """Index a run's history if it belongs to this graph.

        Raise JournalError, StateError.
        """
        history = RunHistory(recorded, self._current_names)
        check_name(history, self.options.name, self.program.renamed)
        if history.state_version == self.options.state_version:
            check_reducers(history, self.program.spec)
        return history

    def _restored(self, run: Run, history: RunHistory, model: str | None) -> Token:
        """Return the root token where the journal ends.

        Raise StateError if old data does not fit the state class.
        """
        run.counts = history.counts
        run.steps = history.steps
        run.budget = max(0, run.max_steps - history.counted) if run.max_steps else -1
        try:
            values = self.program.spec.start(first_values(history, self.program), run.execution_id)
            return restore_token(history, run, self._root(model), self.program, values, trail=None)
        except StateError as error:
            raise _from_other_code(error) from error

    def _migrate(self, history: RunHistory) -> list[Row]:
        version = self.options.state_version
        if history.state_version == version:
            return []
        row = migrated_row(history, self._root(None), self.program, self.options.migrate_state, version)
        history.read(row)
        return [row]


def _from_other_code(error: StateError) -> StateError:
    reason = f"{error.reason}; the run was recorded by other code: raise state_version and give migrate_state"
    return StateError(error.path, reason)


def _read_answers(history: RunHistory, answers: Answers) -> list[Row]:
    """Accept answers to open questions and return the rows to write.

    Raise QuestionError.
    """
    rows: list[Row] = []
    current = {history.current_id(name): _checked_answer(name, answer) for name, answer in answers.items()}
    for name, given in history.new_answers(current).items():
        asked = history.asked[name]
        body = AnsweredBody(asked.step_id, name, time.time(), given, history.scope_of_question(asked))
        rows.append(encode_row(RowKind.ANSWERED, body))
        history.answered(body)
    return rows


def _checked_answer(name: str, answer: Any) -> str | list[str]:
    """Return an answer as the journal stores it. Raise AtomicError."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, (list, tuple, set, frozenset)):
        given = list(cast("Iterable[Any]", answer))
        if all(isinstance(part, str) for part in given):
            return given
    raise AtomicError(f'The answer to "{name}" is {answer!r:.60}; give a text, or a list of texts')


class _ActiveRun(Generic[StateT]):
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


def _read_modes(modes: Sequence[str] | str | None) -> Sequence[str] | None:
    """Return the modes of a stream; a single text is one mode. Raise AtomicError."""
    modes = (modes,) if isinstance(modes, str) else modes
    for mode in modes or ():
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise AtomicError(f'Unknown stream mode "{mode}"{hint}; the modes are {", ".join(MODES)}')
    return modes


async def _stream(running: _ActiveRun[Any], modes: Sequence[str] | None) -> AsyncIterator[Any]:
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
                error = None if item.error is None else str(item.error)
                facts = {
                    "step_id": item.step_id, "status": str(item.status), "attempt": item.attempt,
                    "seconds": item.seconds, "model": item.model, "error": error, "fields": sorted(item.update or ()),
                }  # fmt: skip
                yield StreamEvent(mode, item.node_id, facts)
            case _:
                pass


def _warnings_of(run: Run, told: int, modes: Sequence[str]) -> list[StreamEvent]:
    """Return the engine's own warnings, which belong to no step."""
    fresh = run.warnings[told:] if "events" in modes else ()
    return [StreamEvent("events", str(event.data["node"]), event) for event in fresh]


async def _with_live(running: _ActiveRun[Any]) -> AsyncGenerator[Step[Any] | StreamEvent, None]:
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
