"""The context that a node's function receives: a view of one step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.control import Event, Suspend
from atomic.graph.engine.errors import DuplicateQuestionError
from atomic.graph.engine.state import encode_value
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.errors import NodeError
    from atomic.graph.engine.program import StepOp
    from atomic.graph.engine.token import Token
    from atomic.processes import ExecResult

Answer = str | list[str]


class StepContext:
    """The engine's `NodeContext`. It computes values only when they are requested."""

    # Defaults live in the class: every step makes a context, and unset fields cost
    # nothing.
    _state: Any = None
    _asked = 0
    _taken: frozenset[int] = frozenset()  # indexes of recorded answers that the node has received again
    held: tuple[Suspend, ...] | None = None  # the pauses of this attempt; None: no question and no pause yet
    _calls: tuple[Coroutine[Any, Any, Answer], ...] = ()  # calls of `ask`, awaited or not
    _unanswered = 0  # questions that a live host is answering now
    _settled: asyncio.Future[None] | None = None  # set while the step waits for them
    refusal: DuplicateQuestionError | None = None
    events: list[Event] | None = None
    usage: dict[str, float] | None = None
    programs: set[asyncio.Task[Any]] | None = None  # tasks that wait for a program now
    limit: asyncio.Timeout | None = None  # of the current attempt
    _deps: Any = None
    over = False  # the step is over: tasks that it left running may not ask or start anything
    _parts: dict[str, bytes] | None = None

    def __init__(self, token: Token, op: StepOp, n: int, attempt: int) -> None:
        self._token = token
        self._op = op
        self.n = n
        self.attempt = attempt

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = self._token.state
        return self._state

    @property
    def node_id(self) -> str:
        return self._token.scope.public_id(self._op.id)

    @property
    def output_key(self) -> str:
        return self._op.id

    @property
    def step_id(self) -> str:
        return self._token.run.step_id(self.node_id, self.n)

    @property
    def model(self) -> str | None:
        return self._op.model or self._token.scope.model

    @property
    def errors(self) -> Sequence[NodeError]:
        return self._token.errors

    @property
    def deps(self) -> Any:
        if self._deps is None:
            deps = self._token.run.deps
            bind = getattr(deps, "bound_to", None)  # a runtime that is bound to each step
            self._deps = deps if bind is None else bind(self)
        return self._deps

    @property
    def item(self) -> Any:
        return self._token.scope.item

    @property
    def index(self) -> int | None:
        return self._token.scope.index

    def emit(self, type: str, data: Any = None) -> None:
        event = Event(type, data)
        self.events = [event] if self.events is None else [*self.events, event]
        self._token.run.report_event(self.node_id, event)

    def output_of(self, node_id: str) -> Any:
        return self._token.values["outputs"].get(node_id)

    def add_usage(self, usage: Mapping[str, float]) -> None:
        totals = self.usage or {}
        self.usage = {**totals, **{name: totals.get(name, 0) + amount for name, amount in usage.items()}}

    def ask(self, question: Question | str) -> Coroutine[Any, Any, Answer]:
        call = self._ask(question)
        self._calls = (*self._calls, call)
        self.held = self.held or ()
        return call

    async def _ask(self, question: Question | str) -> Answer:
        asked = Question(question) if isinstance(question, str) else question
        self._asked += 1
        is_named = bool(asked.id)
        if not is_named:
            asked = msgspec.structs.replace(asked, id=f"{self.node_id}-{self._asked}")
        known = self._recorded_answer(asked, is_named=is_named)
        return await self._put_question(asked) if known is None else known

    def is_answered(self, question_id: str) -> bool:
        history = self._token.run.history
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
        token = self._token
        self._unanswered += 1
        try:
            answer = await token.run.ask(question, self.step_id, self.node_id, token=token, by_agent=by_agent)
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

    def _recorded_answer(self, question: Question, *, is_named: bool) -> Answer | None:
        """Return the answer that was recorded before the step was interrupted.

        A question whose text changed is asked again, with a warning.
        """
        history = self._token.run.history
        given = () if history is None else history.answers_of(self.step_id)
        left = [index for index in range(len(given)) if index not in self._taken]
        same_id = [index for index in left if given[index].question.id == question.id]
        fitting = [index for index in same_id if given[index].is_text_of(question)]
        if not fitting and not is_named:  # its id is only its position in the node, which may ask more questions now
            fitting = [index for index in left if given[index].is_unnamed and given[index].is_text_of(question)]
        if fitting:
            self._taken |= {fitting[0]}
            return given[fitting[0]].answer
        if same_id:
            before = given[same_id[0]].question.text
            text = f'question "{question.id}" was {before!r:.60} when it was answered and is {question.text!r:.60} now'
            self._token.run.warn(self.node_id, f"{text}; it is asked again")
        return None

    def answers_for_agent(self) -> Mapping[str, Answer]:
        """Return answers to agents in earlier attempts of this step, by the question's
        text.
        """
        history = self._token.run.history
        return {} if history is None else history.agent_answers(self.step_id)

    async def remember(self, key: str, value: Any) -> None:
        packed = encode_value(value, key)
        self._known_parts()[key] = packed
        await self._token.run.note_part(self.step_id, key, packed)

    def remembered(self, key: str, default: Any = None) -> Any:
        packed = self._known_parts().get(key)
        return default if packed is None else msgspec.msgpack.decode(packed)

    def _known_parts(self) -> dict[str, bytes]:
        if self._parts is None:
            history = self._token.run.history
            self._parts = {} if history is None else dict(history.parts_of(self.step_id))
        return self._parts

    def start_over(self) -> None:
        """Forget the parts and questions of the failed attempt."""
        self._parts = {}
        self._asked = 0
        self._taken = frozenset()
        self.refusal = None
        self.drop_pauses()
        run = self._token.run
        if run.history is not None:
            run.history.forget_answers(self.step_id)

    def drop_pauses(self) -> None:
        """Close the questions of a failed attempt and drop its pauses."""
        self.held = None
        self._calls = ()
        self._token.run.close_questions(self.step_id)

    def pauses(self, raised: Sequence[Suspend]) -> list[Suspend]:
        """Return the pauses of the step.

        The order is: its questions in the order of asking, raised pauses, swallowed
        pauses. A limit that several agents of the step reached appears once.
        """
        held = self.held or ()
        pauses = [pause for pause in held if pause.question is not None]
        pauses += [pause for pause in raised if pause not in pauses]
        for pause in held:
            if pause.question is None and not any(pause is other or pause.code == other.code for other in pauses):
                pauses.append(pause)
        return pauses

    @contextmanager
    def resting(self) -> Generator[None]:
        """Exclude the time inside, spent waiting for an answer or a limit, from the
        timeout.
        """
        limit = self.limit
        loop = asyncio.get_running_loop()
        when = None if limit is None else limit.when()
        if limit is None or when is None:
            yield
            return
        began = loop.time()
        limit.reschedule(None)
        try:
            yield
        finally:
            if not limit.expired():
                limit.reschedule(when + loop.time() - began)

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
