"""The context that a node's function receives: a view of one step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.control import Duration, Event, Suspend
from atomic.graph.engine.errors import DuplicateQuestionError
from atomic.graph.engine.run import GraphCall
from atomic.graph.engine.sent_signals import OWN_PARTS, kept_parts
from atomic.graph.engine.state import State, encode_value
from atomic.questions import AnswerError, Question, typed

if TYPE_CHECKING:
    from atomic.graph.engine.errors import NodeError
    from atomic.graph.engine.history import RecordedAnswer
    from atomic.graph.engine.run import Run, StepKind, StepOwner
    from atomic.processes import ExecResult

Answer = str | list[str]
DataT = TypeVar("DataT")


class StepContext(msgspec.Struct, eq=False):
    """The engine's `NodeContext`. It computes values only when they are requested.

    A Struct, because every step makes one.
    """

    _owner: StepOwner
    _kind: StepKind
    n: int
    attempt: int
    _state: Any = None
    _asked: int = 0
    _calls_of_graphs: int = 0
    _taken: frozenset[int] = frozenset()  # indexes of recorded answers that the node has received again
    held: tuple[Suspend, ...] | None = None  # the pauses of this attempt; None: no question and no pause yet
    _calls: tuple[Coroutine[Any, Any, Answer], ...] = ()  # calls of `ask`, awaited or not
    _unanswered: int = 0  # questions that a live host is answering now
    _settled: asyncio.Future[None] | None = None  # set while the step waits for them
    refusal: DuplicateQuestionError | None = None
    events: list[Event] | None = None
    usage: dict[str, float] | None = None
    programs: set[asyncio.Task[Any]] | None = None  # tasks that wait for a program now
    limit: asyncio.Timeout | None = None  # of the current attempt
    _deps: Any = None
    over: bool = False  # the step is over: tasks that it left running may not ask or start anything
    _parts: dict[str, bytes] | None = None
    # How often this attempt has waited: by the name of a signal, "" for a time.
    _waits: dict[str, int] | None = None
    _left: float = 0.0  # seconds of `timeout` that were left when the first of them began
    _rests: int = 0  # how many of its waits are open, which `timeout` does not count

    __repr__ = object.__repr__  # it would show the whole run

    @property
    def task(self) -> asyncio.Task[Any]:
        """Return the task of a step of a function."""
        return cast("Any", self._owner).task

    @property
    def began(self) -> float:
        """Return when a step of a function began; 0.0 if that is not measured."""
        return cast("Any", self._owner).start

    @property
    def shared(self) -> Run:
        """Return what all steps of the run share."""
        return self._owner.run

    @property
    def state(self) -> Any:
        state = self._state
        if state is None:
            state = self._state = self._owner.state
        return state

    @property
    def node_id(self) -> str:
        return self._owner.scope.public_id(self._kind.id)

    @property
    def output_key(self) -> str:
        return self._kind.id

    @property
    def step_id(self) -> str:
        return self._owner.run.step_id(self.node_id, self.n)

    @property
    def model(self) -> str | None:
        return self._kind.model or self._owner.scope.model

    @property
    def errors(self) -> Sequence[NodeError]:
        return self._owner.errors

    @property
    def deps(self) -> Any:
        if self._deps is None:
            deps = self._owner.run.deps
            bind = getattr(deps, "bound_to", None)  # a runtime that is bound to each step
            self._deps = deps if bind is None else bind(self)
        return self._deps

    @property
    def item(self) -> Any:
        return self._owner.scope.item

    @property
    def index(self) -> int | None:
        return self._owner.scope.index

    def free_worker(self) -> None:
        branches = self._owner.scope.branches
        if branches is not None:
            branches.free_worker(self._owner)

    async def take_worker(self) -> None:
        branches = self._owner.scope.branches
        if branches is not None:
            await branches.take_worker(self._owner)

    def emit(self, type: str, data: Any = None) -> None:
        event = Event(type, data)
        self.events = [event] if self.events is None else [*self.events, event]
        self._owner.run.report_event(self.node_id, event)

    def output_of(self, node_id: str) -> Any:
        return self._owner.values["outputs"].get(node_id)

    def add_usage(self, usage: Mapping[str, float]) -> None:
        totals = self.usage or {}
        self.usage = {**totals, **{name: totals.get(name, 0) + amount for name, amount in usage.items()}}

    @property
    def own_model(self) -> str | None:
        return self._kind.model

    def run(self, graph: Any, input: Mapping[str, Any] | State | None = None) -> Coroutine[Any, Any, Any]:
        self._calls_of_graphs += 1
        call = GraphCall(self)
        self.shared.calls.append(call)  # now: another call may sleep before this one begins
        return self._run(call, graph, input, self._calls_of_graphs)

    async def _run(self, call: GraphCall, graph: Any, input: Mapping[str, Any] | State | None, number: int) -> Any:
        from atomic.graph.engine.called_graphs import run_graph  # it is made of tokens

        if self.over:
            raise AtomicError(f"{self.node_id}: the step is over and can no longer run a graph")
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if self.programs is None:
            self.programs = set()
        self.programs.add(task)  # so that it ends with the step
        try:
            return await run_graph(call, self._owner, graph, input, number)
        finally:
            self.shared.calls.remove(call)
            self.programs.discard(task)

    def ask(self, question: Question | str) -> Coroutine[Any, Any, Any]:
        call = self._ask(question)
        self._calls = (*self._calls, call)
        self.held = self.held or ()
        return call

    async def _ask(self, question: Question | str) -> Any:
        asked = Question(question) if isinstance(question, str) else question
        self._asked += 1
        is_named = bool(asked.id)
        if not is_named:
            number = f"{self.n}-{self._asked}" if self.n > 1 and self._owner.numbers_questions else self._asked
            asked = msgspec.structs.replace(asked, id=f"{self.node_id}-{number}")
        known = self._recorded_answer(asked, is_named=is_named)
        while known is not None:
            try:
                return known.answer if asked.returns is None else typed(asked, known.answer)
            except AnswerError as error:  # the type has changed since
                self._owner.run.warn(self.node_id, f"{error}; it is asked again")
            known = self._recorded_answer(asked, is_named=is_named)
        answer = await self._put_question(asked)
        return answer if asked.returns is None else typed(asked, answer)

    def is_answered(self, question_id: str) -> bool:
        history = self._owner.run.history
        given = () if history is None else history.answers_of(self.step_id)
        return any(one.question.id == question_id for one in given)

    async def ask_for_agent(self, question: Question) -> Answer:
        """Ask a question of an agent.

        An agent may ask something else in the next attempt, so answers are found by the
        question's text.
        """
        known = self.answers_for_agent().get(question.text)
        return await self._put_question(question, by_agent=True) if known is None else known

    async def _put_question(self, question: Question, *, by_agent: bool = False) -> Answer:
        if self.over:
            raise AtomicError(f"{self.node_id}: the step is over and can no longer ask {question.text!r:.60}")
        owner = self._owner
        self._unanswered += 1
        try:
            answer = await owner.run.ask(question, self.step_id, self.node_id, owner=owner, by_agent=by_agent)
        except Suspend as suspend:  # `asyncio.gather` raises only one of several
            self.hold(suspend)
            raise
        except DuplicateQuestionError as error:
            self.refusal = error
            raise
        finally:
            self._unanswered -= 1
            if not self._unanswered and self._settled is not None and not self._settled.done():
                self._settled.set_result(None)
        self.held = tuple(
            pause for pause in self.held or () if pause.question is None or pause.question.id != question.id
        )
        return answer

    def hold(self, pause: Suspend) -> None:
        """Remember a pause, so that the step pauses even if the node swallows the
        exception.
        """
        self.held = (*(self.held or ()), pause)

    async def settle(self) -> None:
        """Raise a pause that the node swallowed, or report a question it did not await.

        Called after the node has returned. Waits for questions that a live host is
        answering.
        """
        turns = 3  # turns of the event loop: a new task needs one, `wait_for` in Python 3.11 another
        while turns and (self._not_begun() or self._unanswered):
            turns -= 1
            await asyncio.sleep(0)
        while self._unanswered:
            self._settled = asyncio.get_running_loop().create_future()
            await self._settled
        if self.held:
            raise self.held[0]
        if self._not_begun():
            raise AtomicError("ctx.ask(…) was called without await, so nothing was asked; write: await ctx.ask(…)")

    def _not_begun(self) -> bool:
        return any(getcoroutinestate(call) == CORO_CREATED for call in self._calls)

    def _recorded_answer(self, question: Question, *, is_named: bool) -> RecordedAnswer | None:
        """Return the answer that was recorded before the step was interrupted.

        A question whose text changed is asked again, with a warning.
        """
        history = self._owner.run.history
        given = () if history is None else history.answers_of(self.step_id)
        left = [index for index in range(len(given)) if index not in self._taken]
        same_id = [index for index in left if given[index].question.id == question.id]
        fitting = [index for index in same_id if given[index].is_text_of(question)]
        if not fitting and not is_named:  # its id is only its position in the node, which may ask more questions now
            fitting = [index for index in left if given[index].is_unnamed and given[index].is_text_of(question)]
        if fitting:
            self._taken |= {fitting[0]}
            return given[fitting[0]]
        if same_id:
            before = given[same_id[0]].question.text
            text = f'question "{question.id}" was {before!r:.60} when it was answered and is {question.text!r:.60} now'
            self._owner.run.warn(self.node_id, f"{text}; it is asked again")
        return None

    def answers_for_agent(self) -> Mapping[str, Answer]:
        """Return answers to agents in earlier attempts of this step, by the question's
        text.
        """
        history = self._owner.run.history
        return {} if history is None else history.agent_answers(self.step_id)

    async def remember(self, key: str, value: Any) -> None:
        if key.startswith(OWN_PARTS):
            raise AtomicError(f'remember("{key}"): keys that start with "{OWN_PARTS}" are reserved; use another key')
        await self.note_part(key, encode_value(value, key))

    async def note_part(self, key: str, packed: bytes) -> None:
        """Record a part of the step's work. It is on disk when this returns."""
        self.keep_part(key, packed)
        await self._owner.run.note_part(self.step_id, key, packed)

    def keep_part(self, key: str, packed: bytes) -> None:
        """Keep a part that is already recorded."""
        self._known_parts()[key] = packed

    def remembered(self, key: str, default: Any = None) -> Any:
        packed = self._known_parts().get(key)
        return default if packed is None else msgspec.msgpack.decode(packed)

    def _known_parts(self) -> dict[str, bytes]:
        if self._parts is None:
            history = self._owner.run.history
            self._parts = {} if history is None else dict(history.parts_of(self.step_id))
        return self._parts

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None) -> Any: ...

    @overload
    async def wait_for(self, name: str, *, timeout: Duration | None = None, returns: type[DataT]) -> DataT: ...

    async def wait_for(self, name: str, *, timeout: Duration | None = None, returns: Any = Any) -> Any:
        from atomic.graph.engine.waits import wait_for_signal  # few steps wait

        return await wait_for_signal(self, name, timeout, returns)

    async def sleep(
        self,
        *,
        seconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> None:
        from atomic.graph.engine.waits import sleep_for

        await sleep_for(self, {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days})

    async def sleep_until(self, when: datetime) -> None:
        from atomic.graph.engine.waits import sleep_until

        await sleep_until(self, when)

    def next_wait(self, name: str) -> int:
        """Return the number of a new wait: for a signal of that name, or "" for a time."""
        if self._waits is None:
            self._waits = {}
        n = self._waits[name] = self._waits.get(name, 0) + 1
        return n

    @property
    def is_at_work(self) -> bool:
        """Return whether the step runs a program or asks the user now."""
        return bool(self.programs) or self._unanswered > 0

    def start_over(self) -> None:
        """Forget the parts and questions of the failed attempt, but not its signals."""
        self._parts = kept_parts(self._known_parts())
        if self._waits is not None:
            self._owner.run.waits.drop(self)
            self._waits = None
        self._asked = 0
        self._calls_of_graphs = 0
        self._taken = frozenset()
        self.refusal = None
        self.drop_pauses()
        run = self._owner.run
        if run.history is not None:
            run.history.forget_answers(self.step_id)
            run.history.forget_calls(self._owner.scope.path, self.step_id)

    def drop_pauses(self) -> None:
        """Close the questions of a failed attempt and drop its pauses."""
        self.held = None
        self._calls = ()
        self._owner.run.close_questions(self.step_id)

    def pauses(self, raised: Sequence[Suspend]) -> list[Suspend]:
        """Return the pauses of the step.

        The order is: its questions in the order of asking, raised pauses, swallowed
        pauses. A limit that several agents of the step reached appears once.
        """
        held = self.held or ()
        pauses = [pause for pause in held if pause.question is not None]
        pauses += [pause for pause in raised if pause not in pauses]
        for pause in held:
            if pause.question is None and not any(pause is other or _is_same_limit(pause, other) for other in pauses):
                pauses.append(pause)
        return pauses

    @contextmanager
    def resting(self) -> Generator[None]:
        """Exclude the time inside, spent waiting for an answer or a limit, from the
        timeout.
        """
        limit = self.limit
        if limit is None:
            yield
            return
        loop = asyncio.get_running_loop()
        self._rests += 1
        if self._rests == 1:
            self._left = (limit.when() or 0.0) - loop.time()
            limit.reschedule(None)
        try:
            yield
        finally:
            self._rests -= 1
            if not self._rests and not limit.expired():
                limit.reschedule(loop.time() + self._left)

    async def exec(
        self,
        *argv: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        input: str | bytes | None = None,
        timeout: float | None = None,
    ) -> ExecResult:
        from atomic.processes import execute

        task = asyncio.current_task()
        if self.programs is None:
            self.programs = set()
        elif self.over:
            raise AtomicError(f"{self.node_id}: the step is over and can no longer start {argv[:1]}")
        self.programs.add(cast("asyncio.Task[Any]", task))
        try:
            return await execute(*argv, cwd=cwd, env=env, input=input, timeout=timeout)
        finally:
            self.programs.discard(cast("asyncio.Task[Any]", task))

    async def end_programs(self) -> None:
        """Stop programs that the node started and did not wait for."""
        left = [task for task in self.programs or () if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _is_same_limit(pause: Suspend, other: Suspend) -> bool:
    return pause.code == other.code and not pause.concerns_only_its_step
