"""The shared data of one run."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec

from atomic.base.step_names import local_node
from atomic.graph.engine.control import Event, RunStatus, Suspend
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
from atomic.graph.engine.state import StateT, Values, encode_value
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.context import Answer, StepContext
    from atomic.graph.engine.forks import OpenBranches
    from atomic.graph.engine.history import RunHistory
    from atomic.graph.engine.journal_writer import JournalWriter
    from atomic.graph.engine.token import Token


class Entry(NamedTuple):
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


class OpenQuestion(NamedTuple):
    """An open question, the step that asks it, and the token of that step."""

    question: Question
    node_id: str
    step_id: str
    token: Token


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
        self.writer = writer
        self.history = history
        self.listening = False
        self.live: Callable[[str, Event], None] | None = None
        self.steps = 0  # number of finished steps
        self.budget = max_steps or -1
        self.max_steps = max_steps
        self.turns = 0
        self.counts: dict[str, int] = {}  # how often each node or fork has begun
        self.waiting: dict[str, OpenQuestion] = {}  # open questions, by id
        self.warnings: list[Event] = []
        self.jumps: set[tuple[str, str]] = set()  # edges of the graph's own nodes that a goto took
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_before = 0

    def begin_in_task(self) -> None:
        """Remember the task that runs the root token, and how often it was cancelled
        before.
        """
        self._task = asyncio.current_task()
        self._cancelled_before = 0 if self._task is None else self._task.cancelling()

    def is_cancelled(self) -> bool:
        """Return whether the caller has cancelled the run."""
        task = asyncio.current_task()
        if task is None:
            return True
        return task.cancelling() > (self._cancelled_before if task is self._task else 0)

    def step_id(self, node_id: str, n: int) -> str:
        return step_id_of(self.execution_id, node_id, n)

    def report_started(self, ctx: StepContext) -> None:
        if self.live is not None:
            self.live(ctx.node_id, Event("started", {"step_id": ctx.step_id, "attempt": ctx.attempt}))

    def report_event(self, node_id: str, event: Event) -> None:
        if self.live is not None:
            self.live(node_id, event)

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
        token: Token,
        finished: bool = False,
        by_agent: bool = False,
    ) -> Answer:
        """Return the host's answer, or raise Suspend until the question is answered.

        With `finished`, the step itself is already recorded, and the answer is an
        update of its scope. Raises DuplicateQuestionError if another question with that
        id is open.
        """
        self._open_question(OpenQuestion(question, node_id, step_id, token), by_agent=by_agent)
        scope = token.scope.path
        try:
            if self.writer is not None:
                body = AskedBody(step_id, node_id, time.time(), question, scope, by_agent, hash_text(question.text))
                await self.writer.write(encode_row(RowKind.ASKED, body))
            self.report_event(node_id, Event("asked", question))
            broker = getattr(self.deps, "broker", None)
            if broker is None:
                raise Suspend(f"waits for an answer to '{question.id}'", question=question, node_id=node_id)
            answer = await broker.ask(question)
            if question.multi_select:
                answer = [answer] if isinstance(answer, str) else list(answer)
            elif not isinstance(answer, str):
                answer = ", ".join(answer)
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

    def _open_question(self, asked: OpenQuestion, *, by_agent: bool) -> None:
        """Register an open question.

        Two agents of one step may ask the same question.
        """
        other = self.waiting.get(asked.question.id)
        is_stale = other is not None and other.token is asked.token and other.step_id != asked.step_id
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
    branches: OpenBranches | None = None  # those whose tasks run its tokens; None: the run's own task

    def __post_init__(self) -> None:
        self.qualified = bool(self.prefix or self.suffix)

    def inner(self, path: str) -> Scope:
        """Return a scope inside this one, with the same values."""
        scope = copy(self)
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
    return msgspec.Raw(encode_value(update or {}, "update"))
