"""The shared data of one run."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast

import msgspec

from atomic.base.step_names import local_node
from atomic.graph.engine.control import Blocked, Event, Failed, RunStatus, Suspend
from atomic.graph.engine.errors import DuplicateQuestionError, NodeError
from atomic.graph.engine.journal import (
    AnsweredBody,
    AskedBody,
    ErrorBody,
    PartBody,
    RowKind,
    encode_row,
    hash_text,
    step_id_of,
)
from atomic.graph.engine.loop_watch import LoopWatch
from atomic.graph.engine.state import StateT, Values, encode_changes
from atomic.questions import AnswerError, Question, read_data

if TYPE_CHECKING:
    from contextlib import ExitStack

    from atomic.graph.engine.context import Answer, StepContext
    from atomic.graph.engine.history import RunHistory
    from atomic.graph.engine.journal import Journal
    from atomic.graph.engine.journal_writer import JournalWriter
    from atomic.graph.engine.token import Token
    from atomic.graph.engine.waits import Waits


class Entry(msgspec.Struct, frozen=True):
    """One update, as it is merged again where branches join."""

    node_id: str
    key: str
    update: Values


class Step(msgspec.Struct, Generic[StateT], frozen=True):
    """One finished execution of a node."""

    node_id: str
    step_id: str
    state: StateT
    update: Mapping[str, Any] | None
    status: RunStatus
    error: Exception | None
    seconds: float
    attempt: int
    model: str | None
    events: Sequence[Event] = ()


class StepOwner(Protocol):
    """What runs a step: a token of a graph, or a call in a workflow function."""

    errors: tuple[NodeError, ...]

    @property
    def run(self) -> Run: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def state(self) -> Any: ...

    @property
    def values(self) -> Values: ...

    @property
    def numbers_questions(self) -> bool:
        """Return whether ids of questions have the number of the step."""
        ...


class StepKind(Protocol):
    """What all steps of a node, or of a function with that name, have in common."""

    @property
    def id(self) -> str: ...

    @property
    def model(self) -> str | None: ...


class OpenQuestion(NamedTuple):
    """An open question, the step that asks it, and what runs that step."""

    question: Question
    node_id: str
    step_id: str
    owner: StepOwner


_MOST_ANSWERS = 10  # of a host to one question, until one fits its type


def _plain_answer(question: Question, answer: str | Sequence[str]) -> Answer:
    """Return the answer to a question without a type as the journal stores it."""
    if question.multi_select:
        return [answer] if isinstance(answer, str) else list(answer)
    return answer if isinstance(answer, str) else ", ".join(answer)


class GraphCall:
    """A call of a graph by a step. It has a token when it has begun."""

    __slots__ = ("ctx", "token")

    def __init__(self, ctx: StepContext) -> None:
        self.ctx = ctx
        self.token: Token | None = None


class Run:
    """Data that all tokens of one run share."""

    def __init__(
        self,
        execution_id: str,
        deps: Any,
        *,
        max_steps: int,
        writer: JournalWriter | None = None,
        history: RunHistory | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.deps = deps
        # Asked before each step: why the run must pause there, if it must.
        self.pause: Callable[[], Suspend | None] | None = getattr(deps, "pause_before_step", None)
        self._begin_deps: Callable[..., Any] | None = getattr(deps, "begin_run", None)
        self._end_deps: Callable[[RunStatus | None], Awaitable[None]] | None = None
        if self._begin_deps is not None:
            deps.require_usable()
        self.writer = writer
        self.history = history
        self.listening = False
        self.live: Callable[[str, Event], None] | None = None
        self.live_step: Callable[[Step[Any]], None] | None = None  # takes a step at once, among live events
        self.calls: list[GraphCall] = []  # graphs that steps call now
        self.inner_steps: list[Step[Any]] = []  # of graphs that nodes call, for the stream
        self.steps = 0  # number of finished steps
        self.budget = max_steps or -1
        self.max_steps = max_steps
        self.counts: dict[str, int] = {}  # how often each node or fork has begun
        self.earlier: dict[str, int] = {}  # the same when the run last began again
        self.waiting: dict[str, OpenQuestion] = {}  # open questions, by id
        self.received: dict[str, int] = {} if history is None else dict(history.received)  # as in RunHistory
        self.warnings: list[Event] = []
        self.end: tuple[str, Failed | Blocked] | None = None  # what ended the run for good, and the node
        self.jumps: set[tuple[str, str]] = set()  # edges of the graph's own nodes that a goto took
        self.root: Token | None = None
        self.count_steps: Callable[[], int] | None = None  # how many steps run; None: count them below `root`
        self.watch = LoopWatch(self)
        self.advancing: Coroutine[Any, Any, Any] | None = None  # of the root token, while it advances
        self.task: asyncio.Task[Any] | None = None  # runs the root token
        self._waits: Waits | None = None
        self._cancelled_before = 0

    def begin_in_task(self) -> None:
        """Remember the task that runs the root token, and how often it was cancelled
        before.
        """
        self.task = asyncio.current_task()
        self._cancelled_before = 0 if self.task is None else self.task.cancelling()
        self.watch.begin()

    def bind_deps(self, journal: Journal | None, closing: ExitStack | None) -> None:
        """Let agents make the object for this run, which keeps its facts in the journal.

        Call it when the run is owned, before any code looks at `deps`.
        """
        if self._begin_deps is None:
            return
        self.deps = self._begin_deps(self.execution_id, journal, closing, self.warn)
        self.pause = getattr(self.deps, "pause_before_step", None)
        self._end_deps = self.deps.end_run

    async def end_deps(self, status: RunStatus | None) -> None:
        """End what the agents of this run have open, before its end is recorded.

        None: it could not be run or recorded.
        """
        self.watch.end()
        if self._end_deps is not None:
            await self._end_deps(status)

    def is_cancelled(self) -> bool:
        """Return whether the caller has cancelled the run."""
        task = asyncio.current_task()
        if task is None:
            return True
        return task.cancelling() > (self._cancelled_before if task is self.task else 0)

    @property
    def waits(self) -> Waits:
        """Return the waits of the run's steps for signals and times."""
        if self._waits is None:
            from atomic.graph.engine.waits import Waits  # few runs wait

            self._waits = Waits(self)
        return self._waits

    def step_id(self, node_id: str, n: int) -> str:
        return step_id_of(self.execution_id, node_id, n)

    def report_started(self, ctx: StepContext) -> None:
        if self.live is not None:
            self.live(ctx.node_id, Event("started", {"step_id": ctx.step_id, "attempt": ctx.attempt}))

    def put_inner_step(self, step: Step[Any]) -> None:
        """Pass on a step of a graph that a node has called, which does not end the node."""
        if self.live_step is not None:
            self.live_step(step)
        else:
            self.inner_steps.append(step)

    def take_inner_steps(self) -> list[Step[Any]]:
        steps, self.inner_steps = self.inner_steps, []
        return steps

    def report_event(self, node_id: str, event: Event) -> None:
        if self.live is not None:
            self.live(node_id, event)

    async def announce(self, step_id: str) -> None:
        """Record that a step has begun, if a row about it would not show that."""

    async def note_part(self, step_id: str, key: str, packed: bytes) -> None:
        """Record a part of a step's work. It is on disk when this returns."""
        if self.writer is not None:
            await self.writer.write(encode_row(RowKind.PART, PartBody(step_id, key, time.time(), msgspec.Raw(packed))))

    async def ask(
        self,
        question: Question,
        step_id: str,
        node_id: str,
        *,
        owner: StepOwner,
        finished: bool = False,
        by_agent: bool = False,
    ) -> Answer:
        """Return the host's answer, or raise Suspend until the question is answered.

        With `finished`, the step itself is already recorded, and the answer is an
        update of its scope. Raises DuplicateQuestionError if another question with that
        id is open.
        """
        shown = question.described()
        self._open_question(OpenQuestion(shown, node_id, step_id, owner), by_agent=by_agent)
        scope = owner.scope.path
        try:
            if self.writer is not None:
                body = AskedBody(step_id, node_id, time.time(), shown, scope, by_agent, hash_text(question.text))
                await self.writer.write(encode_row(RowKind.ASKED, body))
            answer = await self._ask_host(question, shown, node_id)
            if self.writer is not None:
                told = AnsweredBody(step_id, question.id, time.time(), answer, scope if finished else None)
                await self.writer.write(encode_row(RowKind.ANSWERED, told))
        except Suspend:
            raise  # the question stays open
        except BaseException:
            self.waiting.pop(question.id, None)
            raise
        self.waiting.pop(question.id, None)
        return answer

    async def _ask_host(self, question: Question, shown: Question, node_id: str) -> Any:
        """Return the host's answer. One that does not fit its type is asked for again."""
        broker = getattr(self.deps, "broker", None)
        tries = 0
        while True:
            self.report_event(node_id, Event("asked", shown))
            if broker is None:
                raise Suspend(f"waits for an answer to '{question.id}'", question=shown, node_id=node_id)
            answer = await broker.ask(shown)
            if question.returns is None:
                return _plain_answer(question, answer)
            try:
                return read_data(question, answer)
            except AnswerError as error:
                tries += 1
                if tries == _MOST_ANSWERS:
                    raise
                self.warn(node_id, f"{error}; it is asked again")
                shown = msgspec.structs.replace(shown, text=f"{question.text}\n{error}")

    def _open_question(self, asked: OpenQuestion, *, by_agent: bool) -> None:
        """Register an open question.

        Two agents of one step may ask the same question.
        """
        other = self.waiting.get(asked.question.id)
        is_stale = other is not None and other.owner is asked.owner and other.step_id != asked.step_id
        if other is not None and not is_stale and not by_agent:
            raise DuplicateQuestionError(asked.question, asked.node_id, other.question, other.node_id)
        self.waiting[asked.question.id] = asked

    def close_questions(self, step_id: str) -> None:
        """Close the questions of a step that is over or starts again."""
        for id in [id for id, asked in self.waiting.items() if asked.step_id == step_id]:
            del self.waiting[id]

    def close_suspended(self, tokens: Iterable[Token]) -> None:
        """Close the questions of branches that do not continue."""
        if not self.waiting:
            return
        for token in tokens:
            for suspend in token.suspended:
                if suspend.question is not None:
                    self.waiting.pop(suspend.question.id, None)

    def warn(self, node_id: str, text: str) -> None:
        """Report something to the host that is not a failure."""
        event = Event("warning", {"node": node_id, "text": f"{node_id}: {text}"})
        self.warnings.append(event)
        self.report_event(node_id, event)


def quote(name: str) -> str:
    """Return a branch's name for a path, with the separators escaped."""
    return name.replace("%", "%25").replace("|", "%7C").replace(":", "%3A").replace("@", "%40")


def unquote(name: str) -> str:
    return name.replace("%40", "@").replace("%3A", ":").replace("%7C", "|").replace("%25", "%")


class Members(Protocol):
    """What a token needs of the branches, or of the step, that it belongs to."""

    @property
    def ending(self) -> bool:
        """Return whether the token's task is being cancelled."""
        ...

    def free_worker(self, owner: StepOwner) -> None: ...

    async def take_worker(self, owner: StepOwner) -> None: ...


class Scope(msgspec.Struct, kw_only=True, eq=False):
    """One instance of a scope: its position in the run, and what its nodes see there."""

    path: str = ""
    prefix: str = ""
    suffix: str = ""
    qualified: bool = False  # whether the public ids of its nodes differ from their own
    model: str | None = None
    item: Any = None
    index: int | None = None
    counted: bool = True
    names: tuple[str, ...] = ()  # the workflows around it
    breakpoints: frozenset[str] = frozenset()  # nodes of its graph before which the run pauses, and paths below them
    branches: Members | None = None  # those whose tasks run its tokens; None: the run's own task

    def __post_init__(self) -> None:
        self.qualified = bool(self.prefix or self.suffix)

    def inner(self, path: str) -> Scope:
        """Return a scope inside this one, with the same values."""
        scope: Scope = cast("Any", self).__copy__()  # what `copy` calls, in a third of its time
        scope.path = path
        return scope

    def public_id(self, id: str) -> str:
        return f"{self.prefix}{id}{self.suffix}"

    def local_id(self, public_id: str) -> str:
        if not self.qualified:
            return public_id
        if public_id.startswith(self.prefix) and public_id.endswith(self.suffix):
            return public_id[len(self.prefix) : len(public_id) - len(self.suffix)]
        return local_node(public_id)  # the nodes around it were renamed


def error_body(error: NodeError | None) -> ErrorBody | None:
    if error is None:
        return None
    cause = error.__cause__ or error
    text = "".join(traceback.format_exception(cause)[-12:])[-4000:]
    return ErrorBody(error.node_id, error.reason, error.kind, error.path, text.encode("utf-8", "replace").decode())


def encode_update(update: Values | None) -> msgspec.Raw:
    return msgspec.Raw(encode_changes(update))
