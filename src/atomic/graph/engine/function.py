"""A workflow that is a plain async function: run, stream, resume, load and draw it.

It has the ways of a `CompiledGraph` to run, continue and draw a workflow. Start reading
with `function_run`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from inspect import getdoc
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload
from uuid import uuid4

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.active_run import Mode, RunResult, StreamEvent, read_modes
from atomic.graph.engine.builder import GraphOptions, graph
from atomic.graph.engine.compiled import Answers, CompiledGraph, check_no_loop, read_answers, streamed
from atomic.graph.engine.control import RunStatus, Suspend
from atomic.graph.engine.errors import JournalError, NodeError, RunNotFoundError, StoppedError, WorkflowChangedError
from atomic.graph.engine.function_history import FunctionHistory
from atomic.graph.engine.function_records import RecordedRun
from atomic.graph.engine.function_run import FunctionRun
from atomic.graph.engine.function_state import FlowState, FunctionScope, FunctionState
from atomic.graph.engine.function_step import CURRENT
from atomic.graph.engine.function_values import FunctionType, plain_data
from atomic.graph.engine.journal import (
    EndedBody,
    History,
    Journal,
    JournalLike,
    Record,
    ResumedBody,
    Row,
    RowKind,
    Signals,
    StartBody,
    encode_row,
    error_from,
    open_journal,
)
from atomic.graph.engine.node import Block
from atomic.graph.engine.program import Program
from atomic.graph.engine.run import Step
from atomic.graph.engine.run_deps import AgentChoice, opened_agents
from atomic.graph.engine.state import State, StateSpec, encode_value

P = ParamSpec("P")
ResultT = TypeVar("ResultT")
FlowT = TypeVar("FlowT")


def drawn_steps(names: Iterable[str]) -> dict[str, str]:
    """Return the nodes of a drawing by the names of steps, in the order in which these
    first appear. A node has the number of its steps.
    """
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    plain = {name: name.replace("/", " › ") for name in counts}
    return {name: f"{plain[name]} ×{count}" if count > 1 else plain[name] for name, count in counts.items()}


async def _draw_only(ctx: Any) -> None:
    """Stand for a step in a drawing."""


class _DryLog:
    """The log of a run that is only checked: it keeps nothing."""

    def __init__(self, redact: Callable[[bytes], bytes]) -> None:
        self._redact = redact

    def redacted(self, packed: bytes) -> bytes:
        return self._redact(packed)

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        """Forget the rows."""

    def snapshot(self, step: int, body: bytes) -> None:
        """Forget the state."""

    def new_signals(self) -> Signals:
        return []

    def release(self) -> None:
        """Do nothing: the run was not acquired."""


def _is_recorded_end(error: NodeError, history: FunctionHistory) -> bool:
    """Return whether this failure has ended the run before, so that a resume changes nothing."""
    recorded = None if history.ended is None else history.ended.error
    return recorded is not None and (recorded.kind, recorded.reason) == (error.kind, error.reason)


def _is_over(ended: EndedBody | None) -> bool:
    return ended is not None and (ended.status == RunStatus.COMPLETED or ended.is_over)


class MakeFlow(Protocol):
    """Makes the first argument of a workflow function."""

    def __call__(self, scope: FunctionScope) -> Any: ...


class ContinueOptions(TypedDict, total=False):
    """Options of `resume` and `resume_stream`."""

    answers: Answers | None
    deps: Any
    agent: AgentChoice | None
    model: str | None


_CHECK_SECONDS = 20.0  # for one run, in which no step runs
RUN_OPTIONS = ("agent", "answers", "deps", "execution_id", "journal", "model", "modes")


class FunctionWorkflow(Generic[P, ResultT]):
    """A workflow function. It holds no state of a run, so several runs can share it."""

    def __init__(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[ResultT]],
        make_flow: MakeFlow,
        *,
        name: str = "",
        description: str = "",
        state: type[State] = FlowState,
        model: str | None = None,
    ) -> None:
        self.function = function
        self._make_flow = make_flow
        own_name = getattr(function, "__name__", "workflow")
        if not description:
            description = (getdoc(function) or "").partition("\n")[0]
        self.options = GraphOptions(name=name or own_name, description=description, model=model)
        self.state_type = state
        self._type = FunctionType(function, self.options.name, skip=1)
        taken = [name for name in self._type.parameters if name in RUN_OPTIONS]
        if taken:
            raise AtomicError(
                f'{self.name}: the parameter "{taken[0]}" is an option of run(…) or start(…); give it another name'
            )

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def description(self) -> str:
        return self.options.description

    @property
    def node_ids(self) -> tuple[str, ...]:
        """Return no ids: the steps of a function are known when they run."""
        return ()

    @cached_property
    def program(self) -> Program:
        """Return an empty program with the state's type, for hosts that look nodes up."""
        return Program(StateSpec(self.state_type), 0)

    @property
    def block(self) -> Block:
        return Block(())

    @property
    def parameters(self) -> FunctionType:
        """Return the parameters of the function, without the flow."""
        return self._type

    def with_options(self, options: GraphOptions) -> FunctionWorkflow[P, ResultT]:
        """Return the same workflow under another name, description or model."""
        return FunctionWorkflow(
            self.function, self._make_flow, name=options.name, description=options.description,
            state=self.state_type, model=options.model,
        )  # fmt: skip

    def __call__(self, flow: Any, *args: P.args, **kwargs: P.kwargs) -> Awaitable[ResultT]:
        """Call the function itself, with a flow of the caller: a test's, for example."""
        return self.function(flow, *args, **kwargs)

    def run_sync(self, *args: Any, **options: Any) -> RunResult[Any, ResultT]:
        """Run the function until it ends, from code that is not async. See `run`."""
        check_no_loop("run_sync", "workflow.run")
        return asyncio.run(self.run(*args, **options))

    def resume_sync(
        self, journal: JournalLike, execution_id: str, **options: Unpack[ContinueOptions]
    ) -> RunResult[Any, ResultT]:
        """Continue a run, from code that is not async. See `resume`."""
        check_no_loop("resume_sync", "workflow.resume")
        return asyncio.run(self.resume(journal, execution_id, **options))

    async def run(
        self,
        *args: Any,
        deps: Any = None,
        agent: AgentChoice | None = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
        **kwargs: Any,
    ) -> RunResult[Any, ResultT]:
        """Run the function until it ends. Its result is `result` of what this returns.

        Failures are in the result and are not raised.

        Raises:
            AtomicError: The arguments do not fit the function. Nothing has run.
            JournalError: The journal cannot be written, or it already has a run with that id.
        """
        async with opened_agents(agent, deps) as opened:
            return await self._start(args, kwargs, opened, journal, execution_id, model).to_end()

    @overload
    def stream(
        self, *args: Any, modes: None = None, deps: Any = None, agent: AgentChoice | None = None,
        journal: JournalLike | None = None, execution_id: str | None = None, model: str | None = None, **kwargs: Any,
    ) -> AsyncIterator[Step[Any]]: ...  # fmt: skip

    @overload
    def stream(
        self, *args: Any, modes: Sequence[Mode] | Mode, deps: Any = None, agent: AgentChoice | None = None,
        journal: JournalLike | None = None, execution_id: str | None = None, model: str | None = None, **kwargs: Any,
    ) -> AsyncIterator[StreamEvent]: ...  # fmt: skip

    def stream(
        self,
        *args: Any,
        modes: Sequence[Mode] | Mode | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        journal: JournalLike | None = None,
        execution_id: str | None = None,
        model: str | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Run the function and yield each step as it finishes.

        Closing the stream cancels the run.
        """
        read = read_modes(modes)
        return streamed(
            lambda opened: self._start(args, kwargs, opened, journal, execution_id, model), agent, deps, read
        )

    async def resume(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> RunResult[Any, ResultT]:
        """Continue a run: finished steps return their recorded results.

        Raises:
            RunNotFoundError, RunOwnedError, JournalError: The run cannot be opened.
            QuestionError: An answer belongs to no open question.
            WorkflowChangedError: The code makes other steps than the run has recorded.
        """
        async with opened_agents(agent, deps) as opened:
            return await self._take_up(journal, execution_id, answers, opened, model).to_end()

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: None = None, **options: Unpack[ContinueOptions]
    ) -> AsyncIterator[Step[Any]]: ...

    @overload
    def resume_stream(
        self, journal: JournalLike, execution_id: str, *, modes: Sequence[Mode] | Mode,
        **options: Unpack[ContinueOptions],
    ) -> AsyncIterator[StreamEvent]: ...  # fmt: skip

    def resume_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        answers: Answers | None = None,
        modes: Sequence[Mode] | Mode | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """Continue a run like `resume` and yield each new step as it finishes."""
        read = read_modes(modes)
        return streamed(lambda opened: self._take_up(journal, execution_id, answers, opened, model), agent, deps, read)

    async def start(
        self,
        execution_id: str,
        *args: Any,
        journal: JournalLike,
        answers: Answers | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
        **kwargs: Any,
    ) -> RunResult[Any, ResultT]:
        """Run the function under this id, or continue the run that has it.

        If there is no such run, it begins with these arguments. A run that is not over is
        resumed, with the arguments that it already has: calling this again after a crash
        repeats nothing. The result of one that is over is returned.

        Raises the errors of `run` and `resume`, and JournalError if a run that is over
        had other arguments.
        """
        with ExitStack() as closing:
            kept = open_journal(journal, closing, is_new=True)
            async with opened_agents(agent, deps) as opened:
                try:
                    history = kept.history(execution_id)
                except RunNotFoundError:
                    if answers:
                        raise
                    running = self._start(args, kwargs, opened, kept, execution_id, model)
                else:
                    if args or kwargs:
                        self._check_same_input(args, kwargs, history, kept)
                    running = self._take_up(kept, execution_id, answers, opened, model)
                return await running.to_end()

    async def cancel(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> RunResult[Any, ResultT]:
        """Cancel a run for good: compensate for what it has done. It cannot be resumed.

        The function runs again up to its last finished step and is cancelled there.
        """
        async with opened_agents(agent, deps) as opened:
            return await self._take_up(journal, execution_id, None, opened, model, cancel=True).to_end()

    def cancel_stream(
        self,
        journal: JournalLike,
        execution_id: str,
        *,
        modes: Sequence[Mode] | Mode | None = None,
        deps: Any = None,
        agent: AgentChoice | None = None,
        model: str | None = None,
    ) -> AsyncIterator[Any]:
        """Cancel a run like `cancel` and yield each compensation as it finishes."""
        read = read_modes(modes)
        return streamed(
            lambda opened: self._take_up(journal, execution_id, None, opened, model, cancel=True), agent, deps, read
        )

    async def check(self, journal: JournalLike, execution_id: str, *, deps: Any = None) -> None:
        """Check whether this code can continue a run, without recording anything.

        The function runs with its recorded results up to the first step that is new.
        No step runs, but the code between the steps does.

        Raises:
            RunNotFoundError, JournalError: The run cannot be read.
            WorkflowChangedError, AtomicError: The code cannot continue it.
            NodeError: The function raises, and has not ended the run like that before.
        """
        with ExitStack() as closing:
            opened = open_journal(journal, closing)
            recorded = opened.history(execution_id)
            self._check_start(recorded.start)
            history = FunctionHistory(recorded)
            given = self._type.convert(self._known_input(history.start.input or {}))
            values = self._first_values(recorded.start.values, execution_id)
            if self._ended(history, values) is not None:
                return
            run = RecordedRun(execution_id, deps, max_steps=0, history=history)
            run.pause = lambda: Suspend("the first step that is new", begun=False)
            running = self._running(run, given, values, history.start.model)
            running.write_to(_DryLog(opened.redacted))
            running.restore(history)
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    result = await running.to_end()
            except TimeoutError:
                raise WorkflowChangedError(
                    f"The function has reached no step within {_CHECK_SECONDS:g} s: between its steps it waits for "
                    "something that is no step"
                ) from None
            error = (
                result.error if running.failure is None else running.failures.as_node_error(self.name, running.failure)
            )
            if isinstance(error, NodeError) and not result.is_over and not _is_recorded_end(error, history):
                raise error

    def load(self, journal: JournalLike, execution_id: str, at: int | None = None) -> Any:
        """Return the state after finished step number `at`, or after the last one."""
        with ExitStack() as closing:
            recorded = open_journal(journal, closing).history(execution_id, at=at)
        self._check_start(recorded.start)
        values = self._first_values(recorded.start.values, execution_id)
        return self._folded(FunctionHistory(recorded), values).state

    def _folded(self, history: FunctionHistory, values: dict[str, Any]) -> FunctionState:
        """Return the state after the recorded steps."""
        state = FunctionState(self.program.spec, values)
        for recorded in history.finished:
            body = recorded.body
            if body.status == RunStatus.COMPLETED and not recorded.is_dropped and "/" not in body.node_id:
                state.apply(self.program.spec.decode_update(body.update), body.started + body.seconds)
        return state

    def mermaid(self, records: Sequence[Record] = ()) -> str:
        """Return the steps of a run as Mermaid text."""
        return self.sketch(records).mermaid()

    def draw(self, width: int = 100, *, signs: Mapping[str, str] = {}, records: Sequence[Record] = ()) -> str:
        """Return the steps of a run as text of at most `width` columns."""
        return self.sketch(records).draw(width, signs=signs)

    def svg(self, records: Sequence[Record] = ()) -> str:
        """Return the steps of a run as an SVG drawing."""
        return self.sketch(records).svg()

    def sketch(self, records: Sequence[Record] = ()) -> CompiledGraph[Any]:
        """Return a graph that only serves to draw the workflow.

        It has the steps of the records in the order in which their names first appear.
        The steps of a function are known only when it runs, so without records it has one
        node.
        """
        return self.sketch_of(drawn_steps(record.node_id for record in records).values())

    def sketch_of(self, drawn: Iterable[str]) -> CompiledGraph[Any]:
        """Return a graph that only serves to draw these steps; see `drawn_steps`."""
        builder = graph(self.state_type)
        for node_id in drawn:
            builder = builder.node(node_id, _draw_only)
        if not builder.items:
            builder = builder.node(self.name, _draw_only)
        return builder.compile(name=self.name, description=self.description)

    # One run.

    def _start(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], deps: Any, journal: JournalLike | None,
        execution_id: str | None, model: str | None,
    ) -> FunctionRun:  # fmt: skip
        run_id = execution_id or str(uuid4())
        given = self._type.given(args, kwargs)
        values = self._first_values({"input": given} if "input" in self.state_type.__struct_fields__ else {}, run_id)
        run = RecordedRun(run_id, deps, max_steps=0)
        running = self._running(run, given, values, model)
        with ExitStack() as closing:
            opened: Journal | None = None
            if journal is not None:
                body = StartBody(
                    run_id, self.name, time.time(), 1, self.program.spec.reducer_identities(), values,
                    model, input=plain_data(given),
                )  # fmt: skip
                opened = open_journal(journal, closing, is_new=True)
                log = opened.create(run_id, encode_row(RowKind.START, body))
                closing.callback(log.release)
                running.write_to(log)
            running.bind_deps(opened, closing)
        return running

    def _running(
        self, run: RecordedRun, given: Mapping[str, Any], values: dict[str, Any], model: str | None
    ) -> FunctionRun:
        args, kwargs = self._type.call_with(given)

        async def enter(scope: FunctionScope) -> Any:
            CURRENT.set(scope)
            return await self.function(self._make_flow(scope), *args, **kwargs)  # pyright: ignore[reportCallIssue]

        state = FunctionState(self.program.spec, values)
        return FunctionRun(self.name, enter, self._type.result, run, state, model=model or self.options.model)

    def _first_values(self, given: Mapping[str, Any], run_id: str) -> dict[str, Any]:
        plain = {name: value for name, value in given.items() if name not in ("execution_id", "last_updated")}
        return self.program.spec.start(plain, run_id)

    def _check_start(self, start: StartBody) -> None:
        if start.input is None:
            raise JournalError(f'A graph has recorded the run "{start.execution_id}"; resume it with the graph')
        if start.graph != self.name:
            raise JournalError(
                f'The run "{start.execution_id}" belongs to the workflow "{start.graph}", not to "{self.name}"'
            )

    def _take_up(
        self, journal: JournalLike, execution_id: str, answers: Answers | None, deps: Any, model: str | None,
        *, cancel: bool = False,
    ) -> FunctionRun:  # fmt: skip
        with ExitStack() as closing:
            opened = open_journal(journal, closing)
            log = opened.acquire(execution_id)
            closing.callback(log.release)
            recorded = opened.history(execution_id)
            self._check_start(recorded.start)
            history = FunctionHistory(recorded)
            rows: list[Row] = read_answers(history, answers or {})
            given = self._type.convert(self._known_input(history.start.input or {}))
            values = self._first_values(recorded.start.values, execution_id)
            run = RecordedRun(execution_id, deps, max_steps=0, history=history)
            model = model or history.start.model
            running = self._running(run, given, values, model)
            writer = running.write_to(log)
            running.result = self._ended(history, values)
            if running.result is None:
                for row in [*rows, encode_row(RowKind.RESUMED, ResumedBody(time.time(), model))]:
                    writer.later(row)
                running.restore(history, cancel=cancel)
            running.bind_deps(opened, closing)
        return running

    def _check_same_input(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], recorded: History, journal: Journal
    ) -> None:
        """Raise JournalError if the run is over, and had other arguments than these."""
        self._check_start(recorded.start)
        given = self._type.convert(self._type.bind(args, kwargs))
        packed = journal.redacted(encode_value(given, "input"))
        is_same = msgspec.msgpack.decode(packed) == recorded.start.input
        if not is_same and _is_over(FunctionHistory(recorded).ended):
            raise JournalError(f'Run "{recorded.start.execution_id}" has ended with other arguments; start another run')

    def _known_input(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recorded arguments. Raise WorkflowChangedError if a parameter is gone."""
        gone = [name for name in recorded if name not in self._type.parameters]
        if gone:
            raise WorkflowChangedError(
                f'The run was started with the argument "{gone[0]}", which {self.name} no longer takes; put it back'
            )
        return dict(recorded)

    def _ended(self, history: FunctionHistory, values: dict[str, Any]) -> RunResult[Any] | None:
        """Return the result of a run that is over, None if there is something to do."""
        ended = history.ended
        if ended is None or not _is_over(ended):
            return None
        state = self._folded(history, values)
        result: Any = None
        if ended.status == RunStatus.COMPLETED:
            result = self._type.result.read(msgspec.msgpack.encode(ended.result))
        else:
            result = ended.result
        error: Exception | None = None if ended.error is None else error_from(ended.error)
        if error is None and ended.reason:
            reason = ended.reason.removeprefix(f"{self.name}: ")
            error = StoppedError(((self.name, reason),))
        return RunResult(
            state.state, RunStatus(ended.status), error, history.steps, (), history.start.execution_id, result=result,
            is_over=ended.is_over,
        )  # fmt: skip
