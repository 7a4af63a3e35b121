"""A compiled graph: run, stream, resume, load and draw it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload
from uuid import uuid4

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.graph.engine.active_run import ActiveRun, RunResult, StreamEvent, read_modes, stream_of
from atomic.graph.engine.code_changes import check_name, check_order, check_reducers, current_names, migrated_row
from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import StateError
from atomic.graph.engine.history import RunHistory, jumps_of
from atomic.graph.engine.journal import (
    AnsweredBody,
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
from atomic.graph.engine.run import Run, Scope, Step
from atomic.graph.engine.state import State, StateT
from atomic.graph.engine.token import Token

if TYPE_CHECKING:
    from atomic.graph.engine.builder import GraphOptions
    from atomic.graph.engine.compile_edges import Edge
    from atomic.graph.engine.node import Block
    from atomic.graph.engine.program import Program
else:
    GraphOptions = deferred("atomic.graph.engine.builder", "GraphOptions")
    Edge = deferred("atomic.graph.engine.compile_edges", "Edge")
    Block = deferred("atomic.graph.engine.node", "Block")
    Program = deferred("atomic.graph.engine.program", "Program")

Input = Mapping[str, Any] | State
Answers = Mapping[str, str | Sequence[str]]


class RunOptions(TypedDict, total=False):
    """Options of `run` and `stream`."""

    deps: Any
    journal: JournalLike | None
    execution_id: str | None
    model: str | None


class ResumeOptions(TypedDict, total=False):
    """Options of `resume` and `resume_stream`."""

    answers: Answers | None
    deps: Any
    model: str | None


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
        """Return all node ids in reading order. In a subgraph they are `outer/inner`."""
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
        """Run the graph until it ends.

        Failures of nodes are in the result and are not raised.

        Raises:
            StateError: The input does not fit the state. Nothing has run.
            JournalError: The journal cannot be written, or it already has a run with that id.
        """
        return await self._begin(input, deps, journal, execution_id, model).to_end()

    @overload
    def stream(
        self, input: Input | None = None, *, modes: None = None, **options: Unpack[RunOptions]
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def stream(
        self, input: Input | None = None, *, modes: Sequence[str] | str, **options: Unpack[RunOptions]
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
        read = read_modes(modes)
        return stream_of(self._begin(input, deps, journal, execution_id, model), read)

    async def resume(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Continue a run after its last record.

        Raises:
            RunNotFoundError, RunOwnedError, JournalError: The run cannot be opened.
            QuestionError: An answer belongs to no open question.
        """
        return await self._take_up(journal, execution_id, answers, deps, model).to_end()

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: None = None, **options: Unpack[ResumeOptions]
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: Sequence[str] | str, **options: Unpack[ResumeOptions]
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
        read = read_modes(modes)
        return stream_of(self._take_up(journal, execution_id, answers, deps, model), read)

    def load(self, journal: JournalLike, execution_id: str, at: int | None = None) -> StateT:
        """Return the state after finished step number `at`, or after the last one.

        The updates of open branches count. No node and no condition runs.
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
    ) -> ActiveRun[StateT]:
        run_id = execution_id or str(uuid4())
        values = self.program.spec.start(input, run_id)
        run = Run(run_id, deps, max_steps=self.options.max_steps)
        scope = self._root(model)
        token = Token(run, scope, self.program, values, pc=self.program.entry)
        if journal is None:
            return ActiveRun(token)
        body = StartBody(
            run_id, self.options.name, time.time(), self.options.state_version,
            self.program.spec.reducer_identities(), values, model, shape=self.program.shape,
        )  # fmt: skip
        with ExitStack() as closing:
            log = open_journal(journal, closing, is_new=True).create(run_id, encode_row(RowKind.START, body))
            closing.callback(log.release)
            run.writer = JournalWriter(log)
            return ActiveRun(token, closing.pop_all())

    def _root(self, model: str | None) -> Scope:
        return Scope(model=model or self.options.model, names=(self.options.name,))

    def _take_up(
        self, journal: JournalLike, execution_id: str, answers: Answers | None, deps: Any, model: str | None
    ) -> ActiveRun[StateT]:
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
            rows: list[Row] = []
            version = self.options.state_version
            if history.state_version != version:
                migrated = migrated_row(history, self._root(None), self.program, self.options.migrate_state, version)
                history.read(migrated)
                rows.append(migrated)
            rows += _read_answers(history, answers or {})
            run = Run(execution_id, deps, max_steps=self.options.max_steps, history=history)
            run.jumps = jumps_of(history)
            run.writer = JournalWriter(log)
            token = self._restored(run, history, model or history.start.model)
            if not finished:
                rows.append(encode_row(RowKind.RESUMED, ResumedBody(time.time(), model)))
            for row in rows:
                run.writer.later(row)
            run.writer.flush()
            return ActiveRun(token, closing.pop_all(), finished=finished)

    def _read_history(self, recorded: History) -> RunHistory:
        """Index a run's history if it belongs to this graph.

        Raise JournalError, StateError.
        """
        history = RunHistory(recorded, current_names(self.program))
        check_name(history, self.options.name, self.program.renamed)
        if history.state_version == self.options.state_version:
            check_reducers(history.reducers, self.program.spec)
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
