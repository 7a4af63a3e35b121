"""Notice that a step blocks the event loop, and warn once for each node.

A timer of the run, the beat, is due four times a second. While a step blocks the loop,
no beat comes. The end of a step that took long, or the late beat, sees that.

Which step it was follows from the order in which asyncio works: a beat that is due runs
before any task continues. If the machine is busy, or the process was stopped, while all
steps wait, the late beat comes first and finds that no step has run since the last beat.
A step is only named if it has run since then. Two things cannot be told: work in tasks
that a step has made itself is not seen, and of several steps that ran in one turn of the
loop each could be the one.

If the system took the processor away again and again meanwhile, the time says nothing.
Then the time counts that the thread has really worked.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterator
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from atomic.base.step_names import without_items
from atomic.graph.engine.node import NodeKind

if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.graph.engine.program import StepOp
    from atomic.graph.engine.run import Run
    from atomic.graph.engine.token import Token

LIMIT = 1.0  # seconds
BEAT = 0.25  # seconds; so much of the time cannot be assigned
_MOST_TASKS = 1000  # that a beat looks at
_MOST_NAMED = 3
_BUSY = 20  # times a second that the system took the processor away
_REMEDY = (
    "nothing else in this process could run. Call what blocks with `await asyncio.to_thread(…)`; in a graph, "
    "`.tool(…)` runs a plain function in a thread"
)


class _Blocker(NamedTuple):
    """A step that has run in the time without a beat."""

    node_id: str
    seconds: float
    place: str


class LoopWatch:
    """Watches the event loop for one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._warned: set[str] = set()
        self.steps: set[StepContext] = set()  # of functions, while they run
        self.timer: asyncio.TimerHandle | None = None
        self.late_at = math.inf  # what ends later may have blocked the loop
        self._last = 0.0  # when the last beat came
        self._used = (0.0, 0)  # by the thread until then
        self._waited: dict[asyncio.Task[Any], Any] = {}  # for what tasks waited then

    def begin(self) -> None:
        """Begin to watch, if it does not."""
        if self.timer is None:
            self._note_beat(asyncio.get_running_loop())

    def end(self) -> None:
        """Watch no longer."""
        if self.timer is not None:
            self.timer.cancel()
            self._forget()

    def _forget(self) -> None:
        self.timer = None
        self.late_at = math.inf
        self._waited = {}

    def step_ended(self, ctx: StepContext, function: Any) -> None:
        """Look whether a step of a function has blocked the loop, because it is late."""
        seconds = perf_counter() - ctx.began if ctx.began else 0.0
        if not 0 < seconds < LIMIT:
            self._ended(ctx.node_id, seconds, _place_of(function.__code__))

    def node_ended(self, token: Token, op: StepOp, seconds: float) -> None:
        """Look whether a node that took long has blocked the loop. 0 seconds: unknown."""
        if 0 < seconds < LIMIT or op.node.kind not in (NodeKind.PLAIN, NodeKind.TOOL):
            return
        place = ""  # the function that a tool calls is not known here
        if op.node.kind is NodeKind.PLAIN:
            code: CodeType | None = getattr(op.node.run, "__code__", None)
            if _is_own(getattr(op.node.run, "__module__", "")):
                return
            place = "" if code is None else _place_of(code)
        self._ended(token.scope.public_id(op.id), seconds, place)

    def _ended(self, node_id: str, seconds: float, place: str) -> None:
        silent = perf_counter() - self._last
        if self.timer is None or silent < LIMIT or self._is_idle(silent):
            return
        self._warn([_Blocker(node_id, min(seconds or silent, silent), place)])
        self.timer.cancel()
        self._note_beat(asyncio.get_running_loop())

    # Beats

    def _beat(self) -> None:
        silent = perf_counter() - self._last
        if silent >= LIMIT and not self._is_idle(silent):
            self._warn(list(self._blockers(silent)))
        if self._run.root is None and not self.steps:
            self._forget()
            return
        self._note_beat(asyncio.get_running_loop())

    def _note_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._last = perf_counter()
        self.late_at = self._last + LIMIT
        self._used = _used()
        self._waited = {task: _waits_for(task) for task in self._tasks()}
        self.timer = loop.call_later(BEAT, self._beat)

    def _is_idle(self, silent: float) -> bool:
        """Return whether the time without a beat only shows that the machine is busy."""
        seconds, switches = _used()
        if switches - self._used[1] < _BUSY * silent:
            return False
        return seconds - self._used[0] < LIMIT

    def _tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that run steps."""
        root = self._run.root
        if root is None:
            return [ctx.task for ctx in self.steps]
        found: list[asyncio.Task[Any]] = [] if self._run.task is None else [self._run.task]
        left = [root]
        while left and len(found) <= _MOST_TASKS:
            branches = left.pop().open_branches
            if branches is not None:
                found += [task for task in branches.tasks if not task.done()]
                left += branches.members()
        return found if len(found) <= _MOST_TASKS else []

    def _blockers(self, silent: float) -> Iterator[_Blocker]:
        """Yield the steps that have run since the last beat and are not over."""
        steps = {ctx.task: ctx for ctx in self.steps}
        for task in self._tasks():
            waits_for = _waits_for(task)
            if waits_for is None or self._waited.get(task) is waits_for:
                continue
            coroutine = self._run.advancing if task is self._run.task else task.get_coro()
            frames = list(_frames(coroutine))
            node_id, began = _node_in(frames) if task not in steps else (steps[task].node_id, steps[task].began)
            place = _place_in(frames)
            seconds = min(silent, perf_counter() - began)
            if node_id and place and seconds >= LIMIT:
                yield _Blocker(node_id, seconds, f"before {place}")

    def _warn(self, blockers: list[_Blocker]) -> None:
        by_name = {without_items(one.node_id): one for one in blockers}
        if not by_name or not self._warned.isdisjoint(by_name):
            return
        self._warned.update(by_name)
        first = blockers[0]
        what = "blocked the event loop"
        if len(by_name) > 1:
            names = ", ".join(list(by_name)[:_MOST_NAMED])
            what = f"one of {names} blocked the event loop"
        where = f" ({first.place})" if first.place else ""
        self._run.warn(first.node_id, f"{what} for {first.seconds:.1f} s{where}: {_REMEDY}")


def _used() -> tuple[float, int]:
    """Return the processor time of this thread, and how often it was taken away."""
    return thread_time(), getrusage(RUSAGE_THREAD).ru_nivcsw if sys.platform == "linux" else 0


def _waits_for(task: asyncio.Task[Any]) -> Any:
    """Return the future that a task waits for. asyncio shows it to debuggers only."""
    return getattr(task, "_fut_waiter", None)


def _frames(coroutine: Any) -> Iterator[FrameType]:
    """Yield the frames of a coroutine and of what it awaits."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            return
        yield frame
        coroutine = coroutine.cr_await


def _node_in(frames: list[FrameType]) -> tuple[str, float]:
    """Return the node that runs in these frames, and when it began; "" if there is none."""
    from atomic.graph.engine.token import Token  # it imports this module

    for frame in reversed(frames):
        if frame.f_code is Token.advance.__code__:
            ctx: StepContext | None = frame.f_locals.get("ctx")
            if ctx is not None and not ctx.over:
                return ctx.node_id, frame.f_locals["start"]
    return "", 0.0


def _place_in(frames: list[FrameType]) -> str:
    """Return where the author's code waits: the last function that Atomic has called.
    Empty if there is none.
    """
    place = ""
    was_own = True
    for frame in frames:
        is_own = _is_own(str(frame.f_globals.get("__name__", "")))
        if was_own and not is_own:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        was_own = is_own
    return place


def _place_of(code: CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "atomic"
