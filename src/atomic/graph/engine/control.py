"""Values that a node returns or raises to direct the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from atomic.questions import Question

END: Final = "__end__"  # the target after the last node; no node can have this id


class RunStatus(StrEnum):
    """How a run, or one of its steps, ended. Only `COMPLETED` is success."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    BLOCKED = "blocked"


class SignalKind(StrEnum):
    """The kinds of reports that a node can make in addition to its update."""

    CHECKPOINT = "checkpoint"
    CONTEXT_WINDOW_WARNING = "context_window_warning"
    HUMAN_INPUT_REQUIRED = "human_input_required"
    DEBUG_REPORT_GENERATED = "debug_report_generated"


class Signal(msgspec.Struct, frozen=True):
    """A report of a node in addition to its update. An unknown kind fails the node."""

    kind: str
    message: str = ""
    data: Mapping[str, Any] = {}


class NodeResult:
    """The answer of a node: a partial state, where to go next, and signals."""

    __slots__ = ("goto", "signals", "update")

    def __init__(
        self,
        update: Mapping[str, Any] | None = None,
        goto: str | Sequence[str] | None = None,
        signals: Sequence[Signal | str] = (),
    ) -> None:
        self.update = update
        self.goto = goto
        self.signals = signals

    def __repr__(self) -> str:
        return f"NodeResult(update={self.update!r}, goto={self.goto!r}, signals={self.signals!r})"


class Event(msgspec.Struct, frozen=True):
    """An event that a node emitted with `ctx.emit`, or a warning of the engine."""

    type: str
    data: Any = None


class Retry:
    """How often and how soon a failed node is tried again.

    The delay grows by `factor` with each attempt, up to `max_delay`. With jitter it is
    a random value between half of that and all of it, so that many nodes do not retry
    at the same moment. When `on_error` returns a Retry, only its delay counts.
    """

    __slots__ = ("attempts", "delay", "factor", "jitter", "max_delay", "retry_on")

    def __init__(
        self,
        delay: float = 1.0,
        *,
        attempts: int = 3,
        factor: float = 2.0,
        max_delay: float = 60.0,
        jitter: bool = True,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool] | None = None,
    ) -> None:
        self.delay = delay
        self.attempts = attempts
        self.factor = factor
        self.max_delay = max_delay
        self.jitter = jitter
        self.retry_on = _error_filter(retry_on)

    def problem(self) -> str | None:
        """Return the problem of this policy in one sentence, or None."""
        numbers: dict[str, Any] = {"delay": self.delay, "factor": self.factor, "max_delay": self.max_delay}
        for name, value in numbers.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                return f"Retry({name}={value!r:.60}): give a number"
        attempts: Any = self.attempts
        if not isinstance(attempts, int):
            return f"Retry(attempts={attempts!r:.60}): give a whole number"
        if self.retry_on is not None and not callable(self.retry_on):
            return (
                f"Retry(retry_on={self.retry_on!r:.60}): give an exception class, a tuple of them, "
                "or a function of the error"
            )
        if self.attempts < 1:
            return f"Retry(attempts={self.attempts}) never runs the node; give 1 or more"
        if self.delay < 0 or self.max_delay < 0 or self.factor < 0:
            return "Retry takes no negative delay, factor or max_delay"
        return None

    def fits(self, error: Exception) -> bool:
        """Return whether the policy is for this failure."""
        return self.retry_on is None or bool(self.retry_on(error))

    def __repr__(self) -> str:
        return f"Retry(delay={self.delay}, attempts={self.attempts})"


def _error_filter(given: Any) -> Callable[[Exception], bool] | None:
    """Return `retry_on` as a function.

    Keep an invalid value for `problem` to report.
    """
    kinds = cast("tuple[Any, ...]", given if isinstance(given, tuple) else (given,))
    if kinds and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return lambda error: isinstance(error, kinds)
    return cast("Any", given)


RetryLike = Retry | int
RetryPolicies = RetryLike | tuple[Retry, ...]  # of several the first whose `retry_on` fits the failure counts
Duration = float | str | timedelta


def seconds_of(duration: Any) -> float:
    """Return a duration in seconds. Raise ValueError.

    It may be a number, a text such as "90s", "30m" or "2h", or a timedelta.
    """
    if isinstance(duration, str):
        from atomic.config import read_duration  # loaded only for a text

        try:
            seconds = read_duration(duration)
        except ValueError:
            seconds = None
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        seconds = float(duration)
    else:
        total: Any = getattr(cast("Any", duration), "total_seconds", None)
        seconds = None if total is None else float(total())
    if seconds is None:
        raise ValueError(f'is {duration!r:.60}; give seconds, a text such as "90s" or "30m", or a timedelta')
    if not seconds > 0:
        raise ValueError(f"is {duration!r:.60}; give more than 0 seconds")
    return seconds


class Skip(msgspec.Struct, frozen=True):
    """A decision of `on_error`: the step counts as done, with this update."""

    update: Mapping[str, Any] | None = None


class Abort(msgspec.Struct, frozen=True):
    """A decision of `on_error`: the run fails, with this error if one is given."""

    error: Exception | str | None = None


class Goto(msgspec.Struct, frozen=True):
    """A decision of `on_error`: continue at that node, which must have `recovery=True`."""

    node_id: str


class Failed(msgspec.Struct, frozen=True):
    """A result that ends a run as `failed` for good: a resume only reports it again."""

    reason: str
    value: Any = None


class Blocked(msgspec.Struct, frozen=True):
    """A result that ends a run as `blocked` for good: a person has to do something
    first, and then start another run.
    """

    reason: str
    value: Any = None


class Suspend(BaseException):
    """Ends a step without finishing it.

    The run is then `paused` or `blocked` and can resume there.

    A BaseException, so that a node's own `except Exception` cannot swallow a pause.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: RunStatus = RunStatus.PAUSED,
        question: Question | None = None,
        node_id: str = "",
        code: str = "",
        begun: bool = True,
        remedy: str = "",
        signal: str = "",
        wake_at: float | None = None,
    ) -> None:
        self.signal = signal  # the name of the signal that it waits for
        self.wake_at = wake_at  # Unix time when it can continue by itself
        self.remedy = remedy  # what to add to the command that resumes the run, such as `--max-cost 4`
        self.reason = reason
        self.status = status
        self.question = question
        self.node_id = node_id
        self.begun = begun  # False: no work was done, so a task is still pending
        self.code = code  # why it waits, as one word for programs
        super().__init__(reason)

    @property
    def concerns_only_its_step(self) -> bool:
        """Return whether other steps can begin: it waits for an answer, a signal or a
        time, and has not reached a limit.
        """
        return self.question is not None or bool(self.signal) or self.wake_at is not None


class Breakpoint(Suspend):
    """A pause before a node that `pause_before` names. `key` is the visit that follows."""

    def __init__(self, node_id: str, key: str, *, begun: bool) -> None:
        self.key = key
        super().__init__("the run pauses before this node", node_id=node_id, code="breakpoint", begun=begun)


class Postpone(Suspend):
    """Raised by the first node of a task: other tasks must run before this one."""

    def __init__(self, first: Sequence[Any]) -> None:
        self.first = first
        super().__init__("other tasks come first", begun=False)


def status_of(suspended: Sequence[Suspend]) -> RunStatus:
    """Return the status of a step or run with these pauses, or completed without any."""
    if not suspended:
        return RunStatus.COMPLETED
    is_paused = any(suspend.status is RunStatus.PAUSED for suspend in suspended)
    return RunStatus.PAUSED if is_paused else RunStatus.BLOCKED
