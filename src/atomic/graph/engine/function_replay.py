"""Give a workflow function its recorded results again, in the recorded order.

A resume runs the function from its start. A call belongs to the record with its name,
its arguments and the same number of such calls before it, so concurrent steps are told
apart by what they do and not by their arrival. A result is handed over when all earlier
ones were, the function has done all that it could do with them, and as many steps have
begun as had begun then: a race ends as it ended before.

A call without a record waits until all records are handed over. If the function then
makes no progress, its code has changed, and the resume is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import WorkflowChangedError
from atomic.graph.engine.function_history import Recorded
from atomic.graph.engine.function_values import shown
from atomic.graph.engine.state import describe_error

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun

_CANCELLED = str(RunStatus.CANCELLED)


class _Met:
    """A call that waits for its record."""

    __slots__ = ("_before", "_task", "future")

    def __init__(self) -> None:
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._before = self._task.cancelling()
        self.wait_again()

    def wait_again(self) -> None:
        """Keep waiting after a cancellation, which the record has too."""
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def cancellations(self) -> int:
        """Return how often the call was cancelled since it began."""
        return self._task.cancelling() - self._before


class Replay:
    """The records that the function has not received yet, and the calls that wait."""

    def __init__(self, flow: FunctionRun, records: Sequence[Recorded], cancelled_after: int | None) -> None:
        self._flow = flow
        self._records = records
        self._head = 0  # the place of the next record to hand over
        self._met: dict[int, _Met] = {}  # calls that wait for their record, by its place
        self._passed: set[int] = set()  # records that are not to be handed over
        self._unmatched: dict[asyncio.Future[None], tuple[str, Sequence[Any]]] = {}  # calls without a record
        self._places: dict[tuple[str, int, int], int] | None = None  # of records that no call has taken
        self._cancel_at = cancelled_after

    @property
    def is_over(self) -> bool:
        return self._head >= len(self._records) and self._cancel_at is None

    @property
    def waits(self) -> bool:
        """Return whether a call waits, or the function is to be cancelled now."""
        return bool(self._met or self._unmatched) or self._head == self._cancel_at

    @property
    def to_cancel(self) -> Recorded | None:
        """Return the next record if the function has to cancel its call, as it did before."""
        met = self._met.get(self._head)
        if met is None:
            return None
        recorded = self._records[self._head]
        return recorded if met.cancellations < recorded.cancellations + recorded.is_dropped else None

    @property
    def seconds(self) -> float:
        """Return how long the steps up to the next record took."""
        return sum(recorded.body.seconds for recorded in self._records[: self._head + 1])

    def reach_cancellation(self) -> bool:
        """Return whether the run is cancelled for good here; what follows is recorded
        compensation.
        """
        if self._head != self._cancel_at:
            return False
        self._cancel_at = None
        return True

    def take_next(self, name: str, arguments: int, nth: int) -> Recorded | None:
        """Return the next record if it is the call's and can be handed over at once."""
        head = self._head
        if head >= len(self._records) or head == self._cancel_at or self._met or self._passed:
            return None
        recorded = self._records[head]
        call = recorded.call
        flow = self._flow
        if (
            call.arguments != arguments
            or call.nth != nth
            or recorded.body.node_id != name
            or flow.calls.begun < call.begun
            or recorded.is_dropped
            or recorded.cancellations
            or not flow.turns.is_quiet(flow.calls.open)
        ):
            return None
        self._head = head + 1
        if self._unmatched:
            flow.turns.settle()  # this may have been the record that they wait for
        return recorded

    async def meet(self, name: str, arguments: int, nth: int, given: Sequence[Any]) -> Recorded | None:
        """Return the record of a call when it is its turn.

        Return None if there is none: the step has to run.
        """
        place = self._take(name, arguments, nth)
        if place is None:
            try:
                await self._wait_for_end(name, given)
            except asyncio.CancelledError:
                self._flow.calls.note_begun(name, arguments, nth, given)
                raise
            return None
        recorded = self._records[place]
        met = self._met[place] = _Met()
        self.hand_over()
        self._flow.stalls.watch()
        cancellation: asyncio.CancelledError | None = None
        while True:
            try:
                await met.future
                break
            except asyncio.CancelledError as error:
                was_recorded = recorded.body.status == _CANCELLED or met.cancellations <= recorded.cancellations
                if self._flow.is_ending or not was_recorded:
                    self._lose(place)
                    raise
                if cancellation is None:
                    cancellation = error
                if place < self._head:
                    break
                met.wait_again()
                self._flow.stalls.progress += 1
                self.hand_over()
        if recorded.body.status == _CANCELLED:
            self._flow.failures.note_bad(recorded.key, self._flow.calls.begun)
            raise cancellation or asyncio.CancelledError
        return recorded

    async def _wait_for_end(self, name: str, given: Sequence[Any]) -> None:
        """Return when all records are handed over, and a step without one may begin."""
        if self.is_over and not self._unmatched and not self._flow.turns.is_settling:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unmatched[waiter] = (name, given)
        self.hand_over()
        self._flow.stalls.watch()
        try:
            await waiter
        finally:
            del self._unmatched[waiter]

    def patched(self, name: str, arguments: int) -> bool | None:
        """Return whether the run has recorded a patch, None if the replay is over."""
        if self.is_over:
            return None
        place = self._take(name, arguments, 1)
        if place is None:
            return False
        self._passed.add(place)
        self._skip_passed()
        self._flow.stalls.progress += 1
        self._flow.turns.settle()  # the function continues first
        return True

    def _take(self, name: str, arguments: int, nth: int) -> int | None:
        """Return the place of the record of a call."""
        if self._places is None:
            self._places = {}
            for place in range(self._head, len(self._records)):
                recorded = self._records[place]
                self._places[recorded.body.node_id, recorded.call.arguments, recorded.call.nth] = place
        place = self._places.pop((name, arguments, nth), None)
        return None if place is None or place < self._head else place

    def _lose(self, place: int) -> None:
        """Continue without a call whose result the function has lost by a cancellation."""
        flow = self._flow
        if not flow.is_ending:
            flow.records.note_dropped(self._records[place])
        if self._met.pop(place, None) is not None:
            self._passed.add(place)
            self._skip_passed()
            flow.stalls.progress += 1
            flow.turns.settle()  # the cancelled task continues first, so the function is not at rest

    def _skip_passed(self) -> None:
        while self._head in self._passed:
            self._passed.discard(self._head)
            self._head += 1

    def hand_over(self, *, at_rest: bool = False, forced: bool = False) -> None:
        """Hand over the next record if its call waits, or let new steps begin if nothing
        is left.

        With `forced` it does not matter how many steps have begun.
        """
        flow = self._flow
        if flow.turns.is_settling or flow.is_ending:
            return
        self._skip_passed()
        if self._head == self._cancel_at:
            return
        met = self._met.get(self._head)
        if met is None and not self.is_over:
            return
        if met is not None:
            recorded = self._records[self._head]
            if met.future.done() or recorded.is_dropped:
                return
            if not forced and (self.to_cancel is not None or flow.calls.begun < recorded.call.begun):
                return
        if not at_rest and not flow.turns.is_quiet(flow.calls.open):
            flow.turns.settle()
            return
        if met is None:
            for waiter in self._unmatched:
                if not waiter.done():
                    waiter.set_result(None)
            return
        del self._met[self._head]
        self._head += 1
        flow.stalls.progress += 1
        met.future.set_result(None)
        flow.turns.settle()

    def stalled(self) -> bool:
        """Do what is left if the function makes no progress. Return whether it was
        something.

        Raise WorkflowChangedError if nothing can be done.
        """
        if self.is_over:
            return False
        if self.reach_cancellation():
            self._flow.cancel_for_good()
            return True
        if self._head in self._met:
            recorded = self._records[self._head]
            if recorded.is_dropped or (self.to_cancel is not None and recorded.body.status == _CANCELLED):
                raise self.changed("which was cancelled, and is no longer")
            self.hand_over(at_rest=True, forced=True)
            return True
        if not self.waits:
            return False
        raise self.changed(f"is now {self._present()}")

    def _present(self) -> str:
        """Describe the call that the code makes instead of the next record."""
        for name, given in self._unmatched.values():
            return f"{name}({shown(given)})"
        return self._records[min(self._met)].described

    def changed(self, present: str) -> WorkflowChangedError:
        """Return the error of a resume that finds other steps than were recorded."""
        recorded = self._records[self._head]
        number = f"step {recorded.step}" if recorded.step is not None else f"the failed step {recorded.body.node_id}"
        if recorded.step is None and recorded.body.status == _CANCELLED:
            number = f"the cancelled step {recorded.body.node_id}"
        failure = self._flow.failure
        if failure is not None:
            error = WorkflowChangedError(
                f"The function raised {describe_error(failure)} before {number}, {recorded.described}, which the run "
                "has recorded. Remove the cause, or resume with the old code"
            )
            error.__cause__ = failure
            return error
        return WorkflowChangedError(
            f"The code has changed since the run was recorded: {number} was {recorded.described}, {present}. "
            'Resume with the old code, or keep the old order for old runs with flow.patched("NAME")'
        )

    def check_end(self) -> None:
        """Raise WorkflowChangedError if the function has ended without one of its calls.

        Those that it does not await are made too, but their results may come too late.
        """
        for place in range(self._head, len(self._records)):
            if place not in self._met and place not in self._passed:
                self._head = place
                raise self.changed("and the function now ends before it")
