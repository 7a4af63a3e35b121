"""A compiled graph: run, stream, resume, load and draw it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload
from uuid import uuid4

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.graph.engine.active_run import ActiveRun, Mode, RunInProgress, RunResult, StreamEvent, read_modes, stream_of
from atomic.graph.engine.code_changes import check_name, check_order, check_reducers, current_names, migrated_row
from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import JournalError, RunNotFoundError, StateError
from atomic.graph.engine.history import RunHistory, jumps_of
from atomic.graph.engine.journal import (
    AnsweredBody,
    History,
    JournalLike,
    ResumedBody,
    Row,
    RowKind,
    StartBody,
    UpdatedBody,
    encode_row,
    open_journal,
)
from atomic.graph.engine.journal_writer import JournalWriter
from atomic.graph.engine.replay import first_values
from atomic.graph.engine.restore import recorded_values, restore_token
from atomic.graph.engine.run import Run, Scope, Step, encode_update
from atomic.graph.engine.run_deps import AgentChoice, opened_agents
from atomic.graph.engine.state import RESERVED, State, StateT
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
Answers = Mapping[str, Any]


class RunOptions(TypedDict, total=False):
    """Options of `run` and `stream`."""

    deps: Any
    agent: AgentChoice | None
    journal: JournalLike | None
    execution_id: str | None
    model: str | None


class ResumeOptions(TypedDict, total=False):
    """Options of `resume` and `resume_stream`."""

    answers: Answers | None
    update: Mapping[str, Any] | None
    deps: Any
    agent: AgentChoice | None
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
        self.start_node = start

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

    def _repr_svg_(self) -> str:
        """Return the drawing that a notebook shows."""
        return self.svg()

    def run_sync(self, input: Input | None = None, **options: Unpack[RunOptions]) -> RunResult[StateT]:
        """Run the graph until it ends, from code that is not async. See `run`."""
        check_no_loop("run_sync", "graph.run")
        return asyncio.run(self.run(input, **options))

    def resume_sync(
        self, journal: JournalLike, execution_id: str, **options: Unpack[ResumeOptions]
    ) -> RunResult[StateT]:
        """Continue a run, from code that is not async. See `resume`."""
        check_no_loop("resume_sync", "graph.resume")
        return asyncio.run(self.resume(journal, execution_id, **options))

    async def run(
        self,
        input: Input | None = None,
        *,
        deps: Any = None,
        agent: AgentChoice | None = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Run the graph until it ends.

        Failures of nodes are in the result and are not raised. `agent` is short for
        `deps=` with a runtime of `agents(agent)` that ends with the run.

        Raises:
            StateError: The input does not fit the state. Nothing has run.
            JournalError: The journal cannot be written, or it already has a run with that id.
        """
        async with opened_agents(agent, deps) as opened:
            return await self._begin(input, opened, journal, execution_id, model).to_end()

    @overload
    def stream(
        self, input: Input | None = None, *, modes: None = None, **options: Unpack[RunOptions]
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def stream(
        self, input: Input | None = None, *, modes: Sequence[Mode] | Mode, **options: Unpack[RunOptions]
    ) -> AsyncIterator[StreamEvent]: ...

    def stream(
        self,
        input: Input | None = None,
        *,
        modes: Sequence[Mode] | Mode | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """Run the graph and yield each step as it finishes.

        Closing the stream cancels the run.
        """
        read = read_modes(modes)
        return streamed(lambda opened: self._begin(input, opened, journal, execution_id, model), agent, deps, read)

    async def resume(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        update: Mapping[str, Any] | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Continue a run after its last record.

        `update` is merged into its state first, like that of a node. While branches are
        open it changes the state around them: what they have written themselves is
        merged over it when they join.

        Raises:
            RunNotFoundError, RunOwnedError, JournalError: The run cannot be opened, or it
                is completed and an update is given.
            QuestionError: An answer belongs to no open question.
            StateError: The update does not fit the state. Nothing has changed.
        """
        async with opened_agents(agent, deps) as opened:
            return await self._take_up(journal, execution_id, answers, opened, model, update).to_end()

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: None = None, **options: Unpack[ResumeOptions]
    ) -> AsyncIterator[Step[StateT]]: ...

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: Sequence[Mode] | Mode, **options: Unpack[ResumeOptions]
    ) -> AsyncIterator[StreamEvent]: ...

    def resume_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        update: Mapping[str, Any] | None = None,
        modes: Sequence[Mode] | Mode | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """Continue a run like `resume` and yield each step as it finishes."""
        read = read_modes(modes)
        return streamed(
            lambda opened: self._take_up(journal, execution_id, answers, opened, model, update), agent, deps, read
        )

    async def start(
        self,
        execution_id: str,
        input: Input | None = None,
        *,
        journal: JournalLike,
        answers: Answers | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> RunResult[StateT]:
        """Run the graph under this id, or continue the run that has it.

        If there is no such run, it begins with the input. A run that has not completed
        is resumed, with the input that it already has: calling this again after a crash
        repeats nothing. A completed run takes a new input through the reducers and
        begins again at its first node, with the state that it has; without an input its
        result is returned.

        Raises the errors of `run` and `resume`.
        """
        with ExitStack() as closing:
            kept = open_journal(journal, closing, is_new=True)
            async with opened_agents(agent, deps) as opened:
                try:
                    kept.history(execution_id)
                except RunNotFoundError:
                    if answers:
                        raise
                    running = self._begin(input, opened, kept, execution_id, model)
                else:
                    running = self._take_up(kept, execution_id, answers, opened, model, next_input=input)
                return await running.to_end()

    def load(self, journal: JournalLike, execution_id: str, at: int | None = None) -> StateT:
        """Return the state after finished step number `at`, or after the last one.

        The updates of open branches count. No node and no condition runs.
        """
        with ExitStack() as closing:
            history = self._read_history(open_journal(journal, closing).history(execution_id, at=at))
        try:
            values = recorded_values(history, self.program, execution_id)
            return self.program.spec.build(values, history.updated)
        except StateError as error:
            raise _from_other_code(error) from error

    def check(self, journal: JournalLike, execution_id: str) -> None:
        """Check whether this code can continue a run. Nothing is recorded, no node runs.

        Raises:
            RunNotFoundError, JournalError: The run cannot be read.
            JournalError, StateError: The code cannot continue it.
        """
        with ExitStack() as closing:
            history = self._read_history(open_journal(journal, closing).history(execution_id))
            ended = history.ended
            if ended is not None and (ended.status == RunStatus.COMPLETED or ended.is_over):
                return
            self._check_changes(history)
            run = Run(execution_id, None, max_steps=self.options.max_steps, history=history)
            run.jumps = jumps_of(history)
            run.earlier = history.earlier
            self._restored(run, history, None)

    def _check_changes(self, history: RunHistory, *, is_finished: bool = False) -> list[Row]:
        """Check the order of the nodes, and migrate old data. Return the rows to write.

        Raise JournalError, StateError.
        """
        if not is_finished and history.start.shape != self.program.shape:
            check_order(history, self._root(None), self.program)
        version = self.options.state_version
        if history.state_version == version:
            return []
        migrated = migrated_row(history, self._root(None), self.program, self.options.migrate_state, version)
        history.read(migrated)
        return [migrated]

    def _begin(
        self, input: Input | None, deps: Any, journal: JournalLike | None, execution_id: str | None, model: str | None
    ) -> ActiveRun[StateT]:
        run_id = execution_id or str(uuid4())
        values = self.program.spec.start(input, run_id)
        run = Run(run_id, deps, max_steps=self.options.max_steps)
        scope = self._root(model)
        token = Token(run, scope, self.program, values, pc=self.program.entry)
        if journal is None:
            run.bind_deps(None, None)
            return ActiveRun(token, make_result=self.options.result)
        body = StartBody(
            run_id, self.options.name, time.time(), self.options.state_version,
            self.program.spec.reducer_identities(), values, model, shape=self.program.shape,
        )  # fmt: skip
        with ExitStack() as closing:
            opened = open_journal(journal, closing, is_new=True)
            log = opened.create(run_id, encode_row(RowKind.START, body))
            closing.callback(log.release)
            run.writer = JournalWriter(log)
            run.bind_deps(opened, closing)
            return ActiveRun(token, closing.pop_all(), make_result=self.options.result)

    def _root(self, model: str | None) -> Scope:
        breakpoints = frozenset(self.options.pause_before)
        return Scope(model=model or self.options.model, names=(self.options.name,), breakpoints=breakpoints)

    def _take_up(
        self,
        journal: JournalLike,
        execution_id: str,
        answers: Answers | None,
        deps: Any,
        model: str | None,
        update: Mapping[str, Any] | None = None,
        *,
        next_input: Input | None = None,
    ) -> ActiveRun[StateT]:
        """Continue a run. `next_input` lets a completed one begin again."""
        with ExitStack() as closing:
            opened = open_journal(journal, closing)
            log = opened.acquire(execution_id)
            closing.callback(log.release)
            history = self._read_history(opened.history(execution_id))
            ended = history.ended
            finished = ended is not None and (ended.status == RunStatus.COMPLETED or ended.is_over)
            if ended is not None and ended.is_over and (answers or update is not None or next_input is not None):
                raise JournalError(f'Run "{execution_id}" is {ended.status} for good; start another run')
            # Write nothing before everything is checked: a refused resume must not
            # change the run.
            rows: list[Row] = self._check_changes(history, is_finished=finished)
            if finished and update is not None:
                raise JournalError(
                    f'Run "{execution_id}" is completed, so no node would see the update; '
                    "use start(id, input) to let it begin again, or fork it at an earlier step"
                )
            if finished and next_input is not None:
                update = _as_mapping(next_input)
            if update is not None:
                changed = self._updated_row(history, update, again=finished)
                history.read(changed)
                rows.append(changed)
                finished = False
            rows += read_answers(history, answers or {})
            run = Run(execution_id, deps, max_steps=self.options.max_steps, history=history)
            run.jumps = jumps_of(history)
            run.earlier = history.earlier
            run.writer = JournalWriter(log)
            token = self._restored(run, history, model or history.start.model)
            if not finished:
                rows.append(encode_row(RowKind.RESUMED, ResumedBody(time.time(), model)))
            for row in rows:
                run.writer.later(row)
            run.writer.flush()
            run.bind_deps(opened, closing)  # last: what begins here ends with the run, so nothing may raise after it
            return ActiveRun(
                token, closing.pop_all(), make_result=self.options.result, ended=ended if finished else None
            )

    def _updated_row(self, history: RunHistory, update: Mapping[str, Any], *, again: bool) -> Row:
        """Return the row of a change from outside. Raise StateError if it does not fit the state."""
        spec = self.program.spec
        changes = spec.convert(update)
        try:
            values = recorded_values(history, self.program, history.start.execution_id)
        except StateError as error:
            raise _from_other_code(error) from error
        spec.apply(values, changes)
        return encode_row(RowKind.UPDATED, UpdatedBody(time.time(), encode_update(changes), again))

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


def streamed(
    begin: Callable[[Any], RunInProgress], agent: AgentChoice | None, deps: Any, modes: Sequence[str] | None
) -> AsyncIterator[Any]:
    """Begin a run and stream it. With `agent` it begins when the first item is read."""
    if agent is None:
        return stream_of(begin(deps), modes)
    return _stream_with_agents(begin, agent, deps, modes)


async def _stream_with_agents(
    begin: Callable[[Any], RunInProgress], agent: AgentChoice, deps: Any, modes: Sequence[str] | None
) -> AsyncGenerator[Any]:
    async with opened_agents(agent, deps) as opened:
        stream = cast("AsyncGenerator[Any]", stream_of(begin(opened), modes))
        async with aclosing(stream) as items:
            async for item in items:
                yield item


def check_no_loop(name: str, other: str) -> None:
    """Raise AtomicError inside of a running event loop, which another one would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise AtomicError(f"{name} was called inside a running event loop; write: await {other}(…)")


def _as_mapping(input: Input) -> Mapping[str, Any]:
    if not isinstance(input, State):
        return input
    return {name: getattr(input, name) for name in input.__struct_fields__ if name not in RESERVED}


def _from_other_code(error: StateError) -> StateError:
    reason = f"{error.reason}; the run was recorded by other code: raise state_version and give migrate_state"
    return StateError(error.path, reason)


def read_answers(history: RunHistory, answers: Answers) -> list[Row]:
    """Accept answers to open questions and return the rows to write.

    Raise QuestionError, AnswerError.
    """
    rows: list[Row] = []
    current = {history.current_id(name): answer for name, answer in answers.items()}
    for name, given in history.new_answers(current).items():
        asked = history.asked[name]
        body = AnsweredBody(asked.step_id, name, time.time(), given, history.scope_of_question(asked))
        rows.append(encode_row(RowKind.ANSWERED, body))
        history.answered(body)
    return rows
