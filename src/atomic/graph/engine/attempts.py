"""Run a node's attempts and handle its failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from atomic.base.errors import AtomicError, did_you_mean
from atomic.graph.engine.control import (
    END,
    Abort,
    Blocked,
    Event,
    Failed,
    Goto,
    NodeResult,
    Retry,
    RunStatus,
    Signal,
    SignalKind,
    Skip,
    Suspend,
)
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.journal import AttemptBody, ErrorBody, RowKind, encode_row
from atomic.graph.engine.run import error_body
from atomic.graph.engine.state import describe_error
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.graph.engine.program import StepOp
    from atomic.graph.engine.run import StepOwner
    from atomic.graph.engine.state import Values
    from atomic.graph.engine.token import Token
# The exceptions of a plain function of the author. Nothing can cancel it while it runs, so
# all of these are failures.
FAILURES = (Exception, SystemExit, asyncio.CancelledError)


def sort_raised(error: BaseException) -> tuple[list[Suspend], BaseException | None]:
    """Split the exceptions of a node into its pauses and its failure. Groups are taken apart.

    A group with one failure becomes that failure; a group with several stays a group. A
    cancellation next to something else is its consequence and is left out. Raises
    KeyboardInterrupt and GeneratorExit, which are never failures of a node.
    """
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, (KeyboardInterrupt, GeneratorExit)):
            raise leaf
    pauses = [leaf for leaf in leaves if isinstance(leaf, Suspend)]
    others = [leaf for leaf in leaves if not isinstance(leaf, Suspend)]
    failures = [leaf for leaf in others if not isinstance(leaf, asyncio.CancelledError)]
    if not failures and not pauses:
        return [], others[0]
    if len(failures) > 1:
        return pauses, BaseExceptionGroup("several failures", failures)
    return pauses, failures[0] if failures else None


def _leaves(error: BaseException) -> list[BaseException]:
    """Return all exceptions in a group and its nested groups.

    Of a plain exception, itself.
    """
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for part in inner for leaf in _leaves(part)]


def as_node_error(node_id: str, error: BaseException) -> NodeError:
    """Return a failure as a NodeError of the node where it happened."""
    if isinstance(error, NodeError):
        return error
    kind = type(error).__name__
    if isinstance(error, StateError):
        result = NodeError(node_id, error.reason, kind="StateError", path=error.path)
    elif isinstance(error, AtomicError):
        result = NodeError(node_id, str(error), kind=kind)
    elif isinstance(error, asyncio.CancelledError):
        text = "something that the node waited for was cancelled, but the run was not"
        result = NodeError(node_id, f"{describe_error(error)}: {text}", kind=kind)
    elif isinstance(error, BaseExceptionGroup):
        leaves = _leaves(cast("BaseException", error))
        reasons = "; ".join(describe_error(leaf) for leaf in leaves)
        result = NodeError(node_id, f"{len(leaves)} failures: {reasons}", kind=kind)
    else:
        result = NodeError(node_id, describe_error(error), kind=kind)
    result.__cause__ = error
    return result


def error_raised_by(function: str, node_id: str, error: BaseException) -> NodeError:
    """Return the failure of a node for which the author's function raised this."""
    return NodeError(node_id, f"{function} raised {describe_error(error)}", kind=type(error).__name__)


# The result of a step's attempts: a checked update, where to go, the signals, and a
# failure that was handled. A plain tuple, because every step makes one.
Outcome = tuple["Values | None", "tuple[str, ...] | None", Sequence[Signal], NodeError | None]
UNASKED_ATTEMPTS = 3  # attempts of a node without a policy whose on_error returns Retry
_NOTHING: Outcome = (None, None, (), None)


def accept(token: Token, answer: Any) -> Outcome:
    """Check a node's answer against the state's type and return it as an outcome."""
    if answer is None:
        return _NOTHING
    if type(answer) is dict or isinstance(answer, Mapping):  # the first test is faster
        return token.spec.convert(cast("Mapping[str, Any]", answer)), None, (), None
    if isinstance(answer, (Failed, Blocked)):
        raise _end_of(token, answer)
    if not isinstance(answer, NodeResult):
        raise AtomicError(f"returned {answer!r:.60}; a node returns NodeResult, a mapping or None")
    goto = answer.goto
    targets: tuple[str, ...] | None = None
    if goto is not None:
        targets = (goto,) if isinstance(goto, str) else tuple(goto)
        _check_declared(token, targets)
        check_targets(token, targets)
    update = token.spec.convert(answer.update) if answer.update else None
    return update, targets, signals_of(answer.signals) if answer.signals else (), None


def _check_declared(token: Token, targets: tuple[str, ...]) -> None:
    """Raise AtomicError if the node declares where it may go, and a target is not among these."""
    op: Any = token.program.ops[token.pc]
    declared: tuple[str, ...] = op.node.targets
    undeclared = next((target for target in targets if target not in declared), None) if declared else None
    if undeclared is not None:
        known = ", ".join("END" if target == END else f"'{target}'" for target in declared)
        name = "END" if undeclared == END else f"'{undeclared}'"
        raise AtomicError(f"goto {name}: the node does not declare it; goto= has {known}")


def _end_of(token: Token, end: Failed | Blocked) -> BaseException:
    """End the run for good, and return what ends the step.

    Steps of other branches that run now are finished and recorded; no other one begins.
    """
    program = token.program
    node_id = token.scope.public_id(program.ops[token.pc].id)
    if token.run.end is None:
        token.run.end = (node_id, end)
        token.run.pause = lambda: Suspend("the run has ended", status=RunStatus.BLOCKED, begun=False)
    if isinstance(end, Failed):
        return NodeError(node_id, end.reason, kind="Failed")
    return Suspend(end.reason, status=RunStatus.BLOCKED, node_id=node_id)


def check_targets(token: Token, targets: tuple[str, ...]) -> None:
    """Raise AtomicError if a target of a goto cannot be reached from here."""
    program = token.program
    for target in targets:
        if target != END and target not in program.by_id:
            hint = did_you_mean(target, program.by_id)
            raise AtomicError(f"goto '{target}': there is no such node in this scope{hint}")
        if token.group is not None and target != END and token.group.is_elsewhere(token, program.by_id[target]):
            here = program.ops[token.pc].id
            raise AtomicError(
                f"goto '{target}': it is in another branch, which does not wait for this one; "
                f"declare an edge with Edge('{here}', '{target}', condition=…)"
            )
    if not targets:
        raise AtomicError("goto is empty; leave it out, or give END")


async def run_attempts(token: Token, op: StepOp, ctx: StepContext) -> Outcome:
    """Run a node as often as its policy allows.

    Raise NodeError when no attempt is left.
    """
    on_error = op.node.on_error
    given = cast("Retry | tuple[Retry, ...] | None", op.node.retry)
    policies = given if isinstance(given, tuple) else (given,)
    counts = [0] * len(policies)  # failures of each; attempts that ended with a killed process do not count
    while True:
        try:
            return accept(token, await one_attempt(op.call, op.timeout, ctx))
        except BaseException as raised:  # a node may raise anything; pauses and cancellations are raised again
            _, failure = token.classify(raised, ctx)
            if failure is None or (token.run.end is not None and isinstance(failure, NodeError)):
                raise
            error = as_node_error(ctx.node_id, failure)
            cause = failure if isinstance(failure, Exception) else error
        place = _fitting(policies, cause)
        counts[place] += 1
        failed = counts[place]
        policy = policies[place]
        if on_error is None:
            delay = next_delay(policy, failed, cause)
        else:
            answer = await ask_on_error(on_error, cause, token, ctx)
            if not isinstance(answer, Retry):
                ctx.drop_pauses()
                return handle_failure(token, error.node_id, answer, error)
            limit = policy.attempts if policy else UNASKED_ATTEMPTS
            delay = answer.delay if failed < limit else None
        if delay is None:
            raise error from cause
        await note_attempt(token, ctx, error)
        await asyncio.sleep(delay)
        ctx.attempt += 1
        await token.note_started(ctx.step_id, ctx.attempt)
        token.run.report_started(ctx)


def _fitting(policies: Sequence[Retry | None], error: Exception) -> int:
    """Return the place of the policy for a failure: the first that fits, else the last."""
    if len(policies) == 1:
        return 0
    found = (place for place, policy in enumerate(policies) if policy is not None and policy.fits(error))
    return next(found, len(policies) - 1)


async def one_attempt(call: Callable[[Any], Any], timeout: float | None, ctx: StepContext) -> Any:
    """Do the work of a step, within the time of an attempt."""
    if timeout is None:
        return await call_and_settle(call, ctx)
    limit = ctx.limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await call_and_settle(call, ctx)
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"timed out after {timeout:g} s") from None
        raise
    finally:
        ctx.limit = None


async def call_and_settle(call: Callable[[Any], Any], ctx: StepContext) -> Any:
    """Do the work of a step. Raise a pause that it has swallowed."""
    answer = await call(ctx)
    if ctx.held is not None:
        await ctx.settle()
    return answer


def next_delay(policy: Retry | None, failed: int, error: Exception) -> float | None:
    """Return the seconds until the next attempt, or None."""
    if policy is None or failed >= policy.attempts or not policy.fits(error):
        return None
    delay = min(policy.delay * policy.factor ** (failed - 1), policy.max_delay)
    if policy.jitter:
        from random import uniform  # this import takes longer than all of graph/engine

        delay *= uniform(0.5, 1.0)
    return delay


async def ask_on_error(on_error: Any, error: Exception, token: Token, ctx: Any) -> Retry | Skip | Abort | Goto:
    """Return the decision of the author's `on_error`.

    Raise NodeError if it fails itself.
    """
    node_id = ctx.node_id
    try:
        answer = on_error(error, ctx)
        if hasattr(answer, "__await__"):
            answer = await answer
    except BaseException as raised:  # the author's function; anything it raises fails the node
        _, failure = token.classify(raised)
        if failure is None:
            raise
        raise error_raised_by("on_error", node_id, failure) from failure
    if not isinstance(answer, (Retry, Skip, Abort, Goto)):
        raise NodeError(node_id, f"on_error returned {answer!r:.60}; return Retry, Skip, Abort or Goto") from error
    return answer


def handle_failure(token: Token, node_id: str, answer: Skip | Abort | Goto, error: NodeError) -> Outcome:
    """Return the outcome that `on_error` decided.

    Raise AtomicError if the failure stays one.
    """
    if isinstance(answer, Skip):
        return token.spec.convert(answer.update) if answer.update else None, None, (), error
    if isinstance(answer, Goto):
        target = answer.node_id
        check_targets(token, (target,))
        node = getattr(token.program.ops[token.program.by_id[target]], "node", None)
        if node is None or not node.recovery:
            raise AtomicError(f"Goto('{target}'): the target must be made with recovery=True")
        return None, (target,), (), error
    given = answer.error
    if given is None:
        raise error
    raise as_node_error(node_id, given if isinstance(given, Exception) else AtomicError(given)) from error


async def note_attempt(owner: StepOwner, ctx: StepContext, error: NodeError) -> None:
    owner.errors = (*owner.errors, error)
    ctx.start_over()
    retry = {"step_id": ctx.step_id, "attempt": ctx.attempt, "error": str(error)}
    owner.run.report_event(ctx.node_id, Event("retrying", retry))
    if owner.run.writer is not None:
        body = AttemptBody(
            ctx.step_id, ctx.attempt, time.time(), cast("ErrorBody", error_body(error)), owner.scope.path
        )
        await owner.run.writer.write(encode_row(RowKind.ATTEMPT, body))


def signals_of(signals: Sequence[Signal | str]) -> tuple[Signal, ...]:
    """Return the signals as objects. Raise AtomicError for an unknown kind."""
    result = tuple(Signal(signal) if isinstance(signal, str) else signal for signal in signals)
    for signal in result:
        if signal.kind not in set(SignalKind):
            raise AtomicError(f'unknown signal "{signal.kind}"{did_you_mean(str(signal.kind), SignalKind)}')
    return result


def question_in(signals: Sequence[Signal], node_id: str) -> Question | None:
    """Return the question that the signals ask, if any."""
    for signal in signals:
        if signal.kind == SignalKind.HUMAN_INPUT_REQUIRED:
            options = signal.data.get("options", ())
            return Question(signal.message, options=options, id=str(signal.data.get("id", node_id)))
    return None


def warnings_in(signals: Sequence[Signal]) -> list[Event]:
    """Return the signals that only inform the host, as events."""
    kinds = (SignalKind.CONTEXT_WINDOW_WARNING, SignalKind.DEBUG_REPORT_GENERATED)
    return [
        Event("warning", {"kind": str(signal.kind), "text": signal.message, **signal.data})
        for signal in signals
        if signal.kind in kinds
    ]
