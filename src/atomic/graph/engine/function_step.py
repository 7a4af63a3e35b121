"""One call of a step of a workflow function: what is known of it, and what it does now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from atomic.graph.engine.context import StepContext
from atomic.graph.engine.control import Event, Retry
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.function_state import FunctionScope
from atomic.graph.engine.function_values import ResultType, shown
from atomic.graph.engine.journal import CallBody
from atomic.graph.engine.state import Values

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun

Work = Callable[[StepContext], Awaitable[Any]]

# What runs now: a workflow function, one of its steps, or neither.
CURRENT: ContextVar[FunctionScope | StepContext | None] = ContextVar("atomic_workflow", default=None)


class StepPolicy(msgspec.Struct, frozen=True, eq=False):
    """What is known of a step before it is called."""

    owner: str  # for messages
    result: ResultType
    retry: Retry | None = None
    timeout: float | None = None
    namespace: Mapping[str, Any] = {}  # where classes of exceptions are looked up


class StateUpdate(NamedTuple):
    """A result of a step that changes fields of the state instead of `outputs`."""

    update: Values


class Call:
    """One call of a step that runs now. It is the owner and the kind of its `StepContext`."""

    __slots__ = (
        "arguments", "began", "cancelled_before", "ctx", "errors", "flow_scope", "id", "key", "nth", "output",
        "policy", "run", "scope", "start", "step_id", "task", "update", "work",
    )  # fmt: skip
    model: str | None = None  # a step has none of its own
    numbers_questions = True  # several calls of a step may ask at the same time

    def __init__(
        self, flow: FunctionRun, scope: FunctionScope, name: str, key: int, nth: int, arguments: Sequence[Any],
        work: Work, policy: StepPolicy, task: asyncio.Task[Any],
    ) -> None:  # fmt: skip
        self.run = flow.run
        self.scope = flow.scope
        self.flow_scope = scope
        self.id = name
        self.key = key
        self.nth = nth
        self.arguments = arguments
        self.work = work
        self.policy = policy
        self.task = task
        self.errors: tuple[NodeError, ...] = ()
        self.cancelled_before = task.cancelling()
        self.ctx: StepContext
        self.began = self.start = 0.0
        self.step_id = ""  # set if the step is recorded
        self.output: Any = None  # the result, as `FunctionState` keeps it, or:
        self.update: Values | None = None  # changed fields of the state

    @property
    def state(self) -> Any:
        return self.flow_scope.state.state

    @property
    def values(self) -> Values:
        return self.flow_scope.state.values

    @property
    def output_name(self) -> str:
        """Return the name of the result among the outputs of the state."""
        prefix = self.flow_scope.prefix
        return self.id[len(prefix) :] if prefix else self.id

    @property
    def cancellations(self) -> int:
        """Return how often the call was cancelled since it began."""
        return self.task.cancelling() - self.cancelled_before

    @property
    def was_cancelled(self) -> bool:
        return self.cancellations > 0

    def body(
        self, begun: int, raised: list[Any] | None = None, *, was_cancelled: bool = False, cancellations: int = 0
    ) -> CallBody:
        return CallBody(self.key, shown(self.arguments), begun, raised, self.nth, was_cancelled, cancellations)

    def changes(self) -> Values:
        """Return what the result changes in the state, in the form of a record."""
        if self.update is not None:
            return self.update
        output = self.output
        return {"outputs": {self.output_name: msgspec.Raw(output) if type(output) is bytes else output}}

    def apply(self) -> None:
        """Put the result into the state: the function knows it now."""
        state = self.flow_scope.state
        if self.update is None:
            state.add_output(self.output_name, self.output, time.time())
        else:
            state.apply(self.update, time.time())


def is_in_function_step() -> bool:
    """Return whether a workflow function or one of its steps runs now."""
    return CURRENT.get() is not None


def report_event(scope: FunctionScope, type: str, data: Any) -> None:
    """Send an event to the host, unless a resume has sent it before."""
    if scope.run.replay is None:
        scope.run.run.report_event(scope.names[-1], Event(type, data))
