"""Steps of workflow functions: `@step`, `current_step`, and the checks of a call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial, update_wrapper
from inspect import isasyncgenfunction, iscoroutinefunction
from time import perf_counter
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, cast, overload

from atomic.base.errors import AtomicError
from atomic.graph import NodeContext, Retry
from atomic.graph.engine.context import StepContext
from atomic.graph.engine.control import Duration, RetryLike, seconds_of
from atomic.graph.engine.function_state import FunctionScope
from atomic.graph.engine.function_step import CURRENT, StepPolicy
from atomic.graph.engine.function_values import FunctionType, ResultType

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class StepFunction(Generic[P, ResultT]):
    """A function whose calls in a workflow are recorded."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, ResultT]],
        *,
        name: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        returns: Any = None,
    ) -> None:
        update_wrapper(self, function)
        self.name = checked_name(name or getattr(function, "__name__", "step"))
        self._function = function
        self._type = FunctionType(function, self.name)
        self._counts = self._type.counts
        self._retry = read_retry(self.name, retry)
        self._timeout = read_timeout(self.name, timeout)
        self._returns = returns
        self._options: StepPolicy | None = None

    @property
    def options(self) -> StepPolicy:
        if self._options is None:
            result = self._type.result if self._returns is None else ResultType(self._returns, self.name)
            namespace = getattr(self._function, "__globals__", {})
            self._options = StepPolicy(self.name, result, self._retry, self._timeout, namespace)
        return self._options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, ResultT]:
        scope = CURRENT.get()
        if not isinstance(scope, FunctionScope):
            return self._function(*args, **kwargs)

        async def work(ctx: StepContext) -> ResultT:
            watch = ctx.shared.watch
            watch.steps.add(ctx)
            if watch.timer is None:
                watch.begin()
            try:
                return await self._function(*args, **kwargs)
            finally:
                watch.steps.discard(ctx)
                if perf_counter() > watch.late_at:
                    watch.step_ended(ctx, self._function)

        given: Sequence[Any] = args
        if kwargs or len(args) not in self._counts:
            given = self._type.positional(args, kwargs)
        name = f"{scope.prefix}{self.name}" if scope.prefix else self.name
        return scope.run.calls.call(scope, name, given, work, self._options or self.options)

    def __get__(self, instance: object, owner: object = None) -> NoReturn:
        raise AtomicError(f"{self.name}: a method cannot be a step; make it a function of the module")


@overload
def step(function: Callable[P, Coroutine[Any, Any, ResultT]], /) -> StepFunction[P, ResultT]: ...


@overload
def step(
    *, name: str = "", retry: RetryLike | None = None, timeout: Duration | None = None, returns: Any = None
) -> Callable[[Callable[P, Coroutine[Any, Any, ResultT]]], StepFunction[P, ResultT]]: ...


def step(function: Any = None, /, **options: Any) -> Any:
    """Make a step of an async function: a workflow that calls it records the result.

    `retry` decides about further attempts; `timeout` is for each one. Arguments and results
    are plain data, msgspec Structs, dataclasses or pydantic models. The annotation of the
    result, or `returns`, says what a resume makes of the record.

    Raises AtomicError if the function is not async.
    """
    if function is None:
        return partial(_step_of, options)
    return _step_of(options, function)


def _step_of(options: Mapping[str, Any], function: Any) -> StepFunction[Any, Any]:
    name = getattr(function, "__name__", repr(function))
    if not iscoroutinefunction(function):
        kind = "an async generator" if isasyncgenfunction(function) else "not async"
        raise AtomicError(f"@step: {name} is {kind}; write: async def {name}(…)")
    return StepFunction(function, **options)


def current_step() -> NodeContext[Any] | None:
    """Return the context of the step that runs now, None outside of one.

    Its `step_id` is the same in every attempt and after every resume.
    """
    current = CURRENT.get()
    return cast("NodeContext[Any]", current) if isinstance(current, StepContext) else None


def refuse_in_step(what: str) -> None:
    """Raise AtomicError inside a step, which records nothing but its own result."""
    current = CURRENT.get()
    if isinstance(current, StepContext):
        raise AtomicError(
            f"{what} was called inside the step {current.node_id}, whose result is all that a resume has; "
            "call it in the workflow, or use current_step()"
        )


def checked_name(name: str) -> str:
    """Return the name of a step. Raise AtomicError if it cannot be one."""
    if not name or any(sign in name for sign in "/#\n\r\t") or not name.isprintable():
        raise AtomicError(f'"{name[:60]!s}" cannot be the name of a step: it is a text without "/", "#" and line ends')
    return name


def read_retry(name: str, retry: RetryLike | None) -> Retry | None:
    """Return the policy of a step. Raise AtomicError."""
    if retry is None:
        return None
    if isinstance(retry, int) and not isinstance(retry, bool):
        retry = Retry(attempts=retry)
    if not isinstance(retry, Retry):
        raise AtomicError(f"{name}: retry is {retry!r:.60}; give Retry(…), or the number of attempts")
    problem = retry.problem()
    if problem is not None:
        raise AtomicError(f"{name}: {problem}")
    return retry


def read_timeout(name: str, timeout: Duration | None) -> float | None:
    """Return the seconds of one attempt. Raise AtomicError."""
    if timeout is None:
        return None
    try:
        return seconds_of(timeout)
    except ValueError as error:
        raise AtomicError(f"{name}: timeout {error}") from error
