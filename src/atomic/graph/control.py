"""The words with which a node tells the engine what to do next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, cast

import msgspec

from atomic.questions import Question

END: Final = "__end__"  # the target behind the last node; no node can have this id


class RunStatus(StrEnum):
    """How a run, or one of its steps, ended. Only `COMPLETED` is success."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    BLOCKED = "blocked"


class SignalKind(StrEnum):
    """What a node can tell besides its update."""

    CHECKPOINT = "checkpoint"
    CONTEXT_WINDOW_WARNING = "context_window_warning"
    HUMAN_INPUT_REQUIRED = "human_input_required"
    DEBUG_REPORT_GENERATED = "debug_report_generated"


class Signal(msgspec.Struct, frozen=True):
    """Something a node reports beside its update; an unknown kind fails the node."""

    kind: str
    message: str = ""
    data: Mapping[str, Any] = {}


class NodeResult:
    """What a node answers: a partial state, where to go, and what else to know."""

    __slots__ = ("goto", "signals", "update")

    def __init__(
        self,
        update: Mapping[str, Any] | None = None,
        goto: str | Sequence[str] | None = None,
        signals: Sequence[Signal | str] = (),
    ) -> None:
        self.update, self.goto, self.signals = update, goto, signals

    def __repr__(self) -> str:
        return f"NodeResult(update={self.update!r}, goto={self.goto!r}, signals={self.signals!r})"


class Event(msgspec.Struct, frozen=True):
    """What a node emitted with `ctx.emit`, or the engine's own warning."""

    type: str
    data: Any = None


class Retry:
    """How often and how soon a failed node is tried again; as an answer of `on_error`, only the delay counts.

    The delay grows by `factor` from attempt to attempt up to `max_delay`; with jitter it is a random
    part of that, between a half and the whole, so that many nodes do not come back at once.
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
        self.delay, self.attempts, self.factor, self.max_delay = delay, attempts, factor, max_delay
        self.jitter = jitter
        self.retry_on = _error_filter(retry_on)

    def problem(self) -> str | None:
        """What is wrong with this policy, in one sentence."""
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

    def __repr__(self) -> str:
        return f"Retry(delay={self.delay}, attempts={self.attempts})"


def _error_filter(given: Any) -> Callable[[Exception], bool] | None:
    """`retry_on` as a function; what cannot be one stays, for `problem` to report."""
    kinds = cast("tuple[Any, ...]", given if isinstance(given, tuple) else (given,))
    if kinds and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return lambda error: isinstance(error, kinds)
    return cast("Any", given)


RetryLike = Retry | int
Duration = float | str | timedelta


def seconds_of(duration: Any) -> float:
    """A duration as seconds: a number, a text such as "90s", "30m" or "2h", or a timedelta. Raises ValueError."""
    if isinstance(duration, str):
        from atomic.config import read_duration  # few give a text

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
    """An answer of `on_error`: the step counts as done, with this update."""

    update: Mapping[str, Any] | None = None


class Abort(msgspec.Struct, frozen=True):
    """An answer of `on_error`: the run fails, with this error if one is given."""

    error: Exception | str | None = None


class Goto(msgspec.Struct, frozen=True):
    """An answer of `on_error`: go on at that node, which must be `recovery=True`."""

    node_id: str


class Suspend(BaseException):
    """Ends a step without finishing it: the run becomes `paused` or `blocked` and can be resumed there.

    It is no `Exception`, so that a node's own `except Exception` cannot swallow a pause.
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
    ) -> None:
        self.remedy = remedy  # what a person adds to the command that resumes the run, such as `--max-cost 4`
        self.reason, self.status, self.question, self.node_id = reason, status, question, node_id
        self.begun = begun  # False: nothing that counts was done, and a task is still to be begun
        self.code = code  # one word for programs: why it waits
        super().__init__(reason)


class Postpone(Suspend):
    """Raised by the first node of an item of a task loop: the given tasks come first, then the item is taken again."""

    def __init__(self, first: Sequence[Any]) -> None:
        self.first = first
        super().__init__("other tasks come first", begun=False)


def status_of(suspended: Sequence[Suspend]) -> RunStatus:
    """The status of a step or a run that waits for these; completed if it waits for nothing."""
    if not suspended:
        return RunStatus.COMPLETED
    is_paused = any(suspend.status is RunStatus.PAUSED for suspend in suspended)
    return RunStatus.PAUSED if is_paused else RunStatus.BLOCKED
