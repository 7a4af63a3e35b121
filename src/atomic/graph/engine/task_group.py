"""Branches that a token has opened: tasks that pass on their steps and end together."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomic.graph.engine.control import Suspend
    from atomic.graph.engine.journal_writer import JournalWriter
    from atomic.graph.engine.run import Entry, Step


class TaskGroup(ABC):
    """Runs tasks, passes on their finished steps, and ends all of them before it is
    over.
    """

    counts_each = False  # whether each member's end matters, not only the last one's
    is_concurrent = True  # whether several members write to the journal

    def __init__(self, writer: JournalWriter | None) -> None:
        self._writer = writer if self.is_concurrent else None
        self._begun = False
        self._tasks: list[asyncio.Task[None]] = []
        self._working = 0
        loop = asyncio.get_running_loop()
        # Like create_task, but faster: there may be thousands of members.
        plain = loop.get_task_factory() is None
        self._make_task: Callable[..., asyncio.Task[Any]] = (
            partial(asyncio.Task, loop=loop) if plain else loop.create_task
        )
        self._steps: deque[Step[Any]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._fatal: BaseException | None = None
        self._decided = False
        self.ending = False  # set while its members are being cancelled

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a member, which does all its work inside `with group`."""
        self._working += 1
        self._tasks.append(self._make_task(work, name=name))  # a given name is faster than asyncio's own

    def __enter__(self) -> None:  # noqa: B027  # nothing to do
        """Start a member's work.

        The group itself is the context manager, because it is faster.
        """

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """End a member's work. An error that no node can cause ends the group.

        `next_step` raises it.
        """
        self._working -= 1
        is_fatal = error is not None and not isinstance(error, asyncio.CancelledError)
        if is_fatal:
            self._fatal = self._fatal or error
        if not self._working or is_fatal or self.counts_each:
            self._wake()
        return is_fatal

    def put(self, step: Step[Any]) -> None:
        self._steps.append(step)
        self._wake()

    def decide(self) -> None:
        """Cancel the remaining members: the result is decided."""
        self._decided = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @abstractmethod
    def begin(self) -> None:
        """Start the members."""

    def _settled(self) -> None:  # noqa: B027  # few groups need it
        """Act on the end of a task, before the group checks whether it is over."""

    async def next_step(self) -> Step[Any] | None:
        """Return the next finished step of any member, or None when all have ended."""
        try:
            if not self._begun:
                self._begun = True
                if self._writer is not None:
                    self._writer.shared += 1
                self.begin()
            while True:
                if self._steps:
                    return self._steps.popleft()
                if self._fatal is not None or self._decided:
                    break
                self._settled()
                if not self._working:
                    break
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        except BaseException:
            # Also for a cancellation: no member outlives the group. Raised again.
            await self.cancel()
            raise
        await self.cancel()
        if self._fatal is not None:
            raise self._fatal
        return self._steps.popleft() if self._steps else None

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them.

        Raise a cancellation of this call afterwards.
        """
        self.ending = True
        pending = [task for task in self._tasks if not task.done()]
        if self._working:
            for task in pending:
                task.cancel()
        interrupted: asyncio.CancelledError | None = None
        while pending:
            try:
                _, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                interrupted = error
        self._tasks.clear()
        if self._begun and self._writer is not None:
            self._writer.shared -= 1
            self._writer = None
        if interrupted is not None:
            raise interrupted

    @abstractmethod
    def suspended(self) -> list[Suspend]:
        """Return what the members wait for.

        Nothing if the result is decided without them.
        """

    @abstractmethod
    def close_questions(self) -> None:
        """Close the questions of waiting members: the result is decided without them."""

    @abstractmethod
    async def join(self) -> Step[Any] | None:
        """Merge the members into the token that opened them. Raise NodeError."""

    @abstractmethod
    def entries(self, *, kept: bool = False) -> list[Entry]:
        """Return the updates of the members so far, for a reader of the state.

        With `kept` return all of them, for the node that catches a failure.
        """
