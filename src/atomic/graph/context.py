"""What a node's function gets: a view of one step, made anew for each attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.errors import AtomicError
from atomic.graph.control import Event, Suspend
from atomic.graph.errors import DuplicateQuestionError
from atomic.graph.state import encode_value
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.errors import NodeError
    from atomic.graph.program import StepOp
    from atomic.graph.token import Token
    from atomic.processes import ExecResult

Answer = str | list[str]


class StepContext:
    """The engine's `NodeContext`. Everything that costs something is worked out when it is asked for."""

    # What is not set costs nothing: one of these is made for every step.
    _state: Any = None
    _asked = 0
    _taken: frozenset[int] = frozenset()  # which of the recorded answers the node has been given again
    held: tuple[Suspend, ...] | None = None  # the pauses of this attempt; None: it has asked nothing and none came
    _calls: tuple[Coroutine[Any, Any, Answer], ...] = ()  # of `ask`: also those that nobody awaits
    _unanswered = 0  # questions that wait for a live host right now
    _settled: asyncio.Future[None] | None = None  # for the step that waits until they do not
    refusal: DuplicateQuestionError | None = None
    events: list[Event] | None = None
    usage: dict[str, float] | None = None
    programs: set[asyncio.Task[Any]] | None = None  # who waits for a program right now
    limit: asyncio.Timeout | None = None  # of the attempt that runs
    _deps: Any = None
    over = False  # what the node has left behind may neither ask nor start anything
    _parts: dict[str, bytes] | None = None

    def __init__(self, token: Token, op: StepOp, n: int, attempt: int) -> None:
        self._token, self._op, self.n, self.attempt = token, op, n, attempt

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = self._token.state
        return self._state

    @property
    def node_id(self) -> str:
        return self._token.place.public_id(self._op.id)

    @property
    def output_key(self) -> str:
        return self._op.id

    @property
    def step_id(self) -> str:
        return self._token.run.step_id(self.node_id, self.n)

    @property
    def model(self) -> str | None:
        return self._op.model or self._token.place.model

    @property
    def errors(self) -> Sequence[NodeError]:
        return self._token.errors

    @property
    def deps(self) -> Any:
        if self._deps is None:
            deps = self._token.run.deps
            bind = getattr(deps, "bound_to", None)  # one that wants to know which step it works for
            self._deps = deps if bind is None else bind(self)
        return self._deps

    @property
    def item(self) -> Any:
        return self._token.place.item

    @property
    def index(self) -> int | None:
        return self._token.place.index

    def emit(self, type: str, data: Any = None) -> None:
        event = Event(type, data)
        self.events = [event] if self.events is None else [*self.events, event]
        self._token.run.tell_live(self.node_id, event)

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
        past = self._token.run.past
        given = () if past is None else past.answers_of(self.step_id)
        return any(one.question.id == question_id for one in given)

    async def ask_for_agent(self, question: Question) -> Answer:
        """`ask` for somebody who may ask something else the second time: answers are found by the question's words."""
        known = self.answers_for_agent().get(question.text)
        return await self._put_question(question, by_agent=True) if known is None else known

    async def _put_question(self, question: Question, *, by_agent: bool = False) -> Answer:
        if self.over:
            raise AtomicError(f"{self.node_id}: the step is over, it cannot ask {question.text!r:.60} any more")
        token = self._token
        self._unanswered += 1
        try:
            answer = await token.run.ask(question, self.step_id, self.node_id, token=token, by_agent=by_agent)
        except Suspend as suspend:  # `asyncio.gather` passes on one of several
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
        """Remember a pause, so that the step pauses even if the node swallows it."""
        self.held = (*(self.held or ()), pause)

    async def settle(self) -> None:
        """Raise the pause that a node has swallowed, or the question that it asked and did not await.

        Called when the node has returned. A question that still waits for a live host is waited for.
        """
        turns = 3  # of the event loop: a task begins in the next one, `wait_for` in Python 3.11 adds another
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
        """What was answered before the step was cut; a question with another text is asked again, and that is said."""
        past = self._token.run.past
        given = () if past is None else past.answers_of(self.step_id)
        left = [index for index in range(len(given)) if index not in self._taken]
        same_id = [index for index in left if given[index].question.id == question.id]
        fitting = [index for index in same_id if given[index].is_text_of(question)]
        if not fitting and not is_named:  # its id is only its place in the node, which may have got more questions
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
        """What agents asked in earlier attempts of this step, by the question's words."""
        past = self._token.run.past
        return {} if past is None else past.told_agents(self.step_id)

    async def remember(self, key: str, value: Any) -> None:
        packed = encode_value(value, key)
        self._known_parts()[key] = packed
        await self._token.run.note_part(self.step_id, key, packed)

    def remembered(self, key: str, default: Any = None) -> Any:
        packed = self._known_parts().get(key)
        return default if packed is None else msgspec.msgpack.decode(packed)

    def _known_parts(self) -> dict[str, bytes]:
        if self._parts is None:
            past = self._token.run.past
            self._parts = {} if past is None else dict(past.parts_of(self.step_id))
        return self._parts

    def start_over(self) -> None:
        """The attempt failed: the next one remembers nothing and asks again."""
        self._parts, self._asked, self._taken, self.refusal = {}, 0, frozenset(), None
        self.drop_pauses()
        run = self._token.run
        if run.past is not None:
            run.past.forget_answers(self.step_id)

    def drop_pauses(self) -> None:
        """The attempt failed: what it has asked is no longer open, and its pauses do not count."""
        self.held, self._calls = None, ()
        self._token.run.close_questions(self.step_id)

    def pauses(self, raised: Sequence[Suspend]) -> list[Suspend]:
        """What the step waits for: its questions in the order of asking, what was raised, and what was swallowed.

        A cap that several agents of the step have reached is named once.
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
        """The time that is spent inside, waiting for a person or a limit, is not the attempt's."""
        limit, loop = self.limit, asyncio.get_running_loop()
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
            raise AtomicError(f"{self.node_id}: the step is over, it cannot start {argv[:1]} any more")
        self.programs.add(cast("asyncio.Task[Any]", task))
        try:
            return await execute(*argv, cwd=cwd, env=env, input=input, timeout=timeout)
        finally:
            self.programs.discard(cast("asyncio.Task[Any]", task))

    async def end_programs(self) -> None:
        """End what a node has started and not waited for."""
        left = [task for task in self.programs or () if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
