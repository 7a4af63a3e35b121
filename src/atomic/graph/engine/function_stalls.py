"""Notice that a workflow function makes no progress: it waits for the user, or its code has
changed.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from gc import get_referents
from typing import TYPE_CHECKING, Any

from atomic.graph.engine.errors import WorkflowChangedError
from atomic.graph.engine.function_state import FunctionScope
from atomic.graph.engine.function_step import CURRENT

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.graph.engine.function_run import FunctionRun

PATIENCE = 1.0  # seconds without progress, while timers or other tasks may still lead to some
_LOOKS = 4  # in this time, so that a slow machine does not decide
_LOOK = 0.001  # seconds between two looks; a look in each turn would never let the loop rest
_QUIET_LOOKS = 30  # without progress, where something else keeps the loop busy


class Stalls:
    """Watches whether a function makes progress, while something waits."""

    def __init__(self, flow: FunctionRun) -> None:
        self.progress = 0  # grows with everything that happens
        self._flow = flow
        self._is_looking = False
        self._seen = -1
        self._quiet_looks = 0
        self._quiet_since = 0.0
        self._looks = 0

    def watch(self) -> None:
        """Watch whether the function makes progress, until it does or cannot."""
        if not self._is_looking and not self._flow.is_ending:
            self._is_looking = True
            self._seen = -1
            asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        flow = self._flow
        if flow.is_ending or flow.calls.running or not self._waits:
            self._is_looking = False
            return
        loop = asyncio.get_running_loop()
        turns = flow.turns
        if self._seen != self.progress or turns.is_settling:
            self._seen = self.progress
            self._quiet_looks = self._looks = 0
            self._quiet_since = loop.time()
        self._quiet_looks += 1
        patience = self._patience
        if turns.is_settling or (self._quiet_looks < _QUIET_LOOKS and not turns.is_idle):
            loop.call_later(_LOOK, self._look)
        elif self._may_continue() and (self._looks < _LOOKS or loop.time() - self._quiet_since < patience):
            self._looks += 1
            loop.call_later(patience / _LOOKS, self._look)
        else:
            self._is_looking = False
            self._stalled()

    @property
    def _patience(self) -> float:
        """Return how long to wait for a timer or another task.

        If the function has cancelled the next step, its timer has run for at most as
        long as all steps.
        """
        replay = self._flow.replay
        if replay is None or replay.to_cancel is None:
            return PATIENCE
        return PATIENCE + replay.seconds

    @property
    def _waits(self) -> bool:
        flow = self._flow
        return bool(flow.calls.pauses) or (flow.replay is not None and flow.replay.waits)

    def _may_continue(self) -> bool:
        """Return whether timers or tasks exist that may lead to another step."""
        flow = self._flow
        timers = flow.turns.timers_besides(flow.run.watch.timer)
        if timers is None:
            return True
        # A replay also waits for timers of others: it refuses the run if it waits too little.
        if timers and (flow.replay is not None or any(_belongs_to(timer, flow) for timer in timers)):
            return True
        known = {*flow.own_tasks, *flow.calls.tasks}
        return any(_belongs_to(task, flow) for task in asyncio.all_tasks() if task not in known and not task.done())

    def _stalled(self) -> None:
        flow = self._flow
        try:
            if flow.replay is not None and flow.replay.stalled():
                self.watch()
                return
        except WorkflowChangedError as error:
            flow.refuse(error)
            return
        if flow.calls.pauses:
            flow.pause()


def _belongs_to(started: asyncio.Task[Any] | asyncio.TimerHandle, run: FunctionRun) -> bool:
    """Return whether a workflow function has started a task or a timer, or waits for it."""
    return any(isinstance(scope, FunctionScope) and scope.run is run for scope in _scopes_of(started))


def _scopes_of(started: asyncio.Task[Any] | asyncio.TimerHandle) -> list[FunctionScope | StepContext | None]:
    """Return what ran when a task or a timer was started, and what waits for it.

    Only the garbage collector knows the contexts of both: a task shows its own from
    Python 3.12 on, a timer never.
    """
    return [one.get(CURRENT) for one in get_referents(started) if isinstance(one, Context)]
