"""Which steps of a workflow function have failed: what ends the run, and what a resume tries
again.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.errors import NodeError, StepError

_KNOWN_FAILURES = 100


class _Bad(NamedTuple):
    """A failed or cancelled step whose outcome the function has received."""

    key: str
    begun: int  # how many steps had begun
    error: BaseException | None
    is_consequence: bool  # of a cancellation by the function


class Failures:
    """The last failed and cancelled steps of a run."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, BaseException]] = {}  # the last failures of steps, by id
        self._bad: list[_Bad] = []  # since the last step began

    def note(self, step: str, key: str, begun: int, error: BaseException, *, is_consequence: bool) -> None:
        """Remember in which step an exception was raised, in case that it ends the run."""
        if len(self._known) >= _KNOWN_FAILURES:
            del self._known[next(iter(self._known))]
        self._known[id(error)] = (step, error)
        self.note_bad(key, begun, error, is_consequence=is_consequence)

    def note_bad(
        self, key: str, begun: int, error: BaseException | None = None, *, is_consequence: bool = True
    ) -> None:
        """Remember a failed or cancelled step, which a resume may have to run again."""
        if self._bad and self._bad[-1].begun < begun:
            self._bad.clear()
        self._bad.append(_Bad(key, begun, error, is_consequence))

    def to_run_again(self, begun: int, error: BaseException) -> list[str]:
        """Return the failed steps that have ended the run, and those that were cancelled
        because of them.

        The function continued after the other failures.
        """
        last = [bad for bad in self._bad if bad.begun == begun]
        again: list[str] = []
        for bad in last:
            is_cause = bad.error is not None and _comes_from(error, bad.error)
            if is_cause or (again and bad.is_consequence):
                again.append(bad.key)
        return again

    def as_node_error(self, workflow: str, error: BaseException) -> NodeError:
        """Return the failure of the run, with the step where it happened."""
        steps = [step for step, failure in self._known.values() if _contains(error, failure)]
        step = steps[0] if len(steps) == 1 else workflow
        if isinstance(error, StepError):
            made = NodeError(error.step, error.reason, kind=error.kind)
            made.__cause__ = error.__cause__ or error
            return made
        return as_node_error(step, error)


def _contains(error: BaseException, wanted: BaseException) -> bool:
    """Return whether an error is another one, or a group with it."""
    if isinstance(error, BaseExceptionGroup):
        return any(_contains(part, wanted) for part in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return error is wanted


def _comes_from(error: BaseException, wanted: BaseException) -> bool:
    """Return whether an error is another one, has it in a group, or was raised because
    of it.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is wanted:
            return True
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        left += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", one).exceptions
    return False
