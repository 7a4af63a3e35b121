"""Tasks that belong together: they hand up their steps, and none is left behind."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atomic.graph.run import Step


class Crew:
    """Runs tasks, passes on the steps that they finish, and ends them all before it is over."""

    counts_each = False  # whether the end of one member matters before the last has ended

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._working = 0
        loop = asyncio.get_running_loop()
        # What create_task does, without the detour through its Python half: there may be thousands of members.
        plain = loop.get_task_factory() is None
        self._make_task: Callable[..., asyncio.Task[Any]] = (
            partial(asyncio.Task, loop=loop) if plain else loop.create_task
        )
        self._steps: deque[Step[Any]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._fatal: BaseException | None = None
        self._decided = False
        self.ending = False  # whether its members are being cancelled

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a member; all that it does is inside `with crew`."""
        self._working += 1
        self._tasks.append(self._make_task(work, name=name))  # asyncio would take longer to make a name up

    def __enter__(self) -> None:
        """A member works. It is the crew itself, because there may be thousands of members."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """The member has ended; what no node could have caused ends the whole crew and is told by `next_step`."""
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
        """Nothing more is needed: the others are cancelled."""
        self._decided = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _settled(self) -> None:
        """Called whenever a task has ended, before the crew looks whether it is over."""

    async def next_step(self) -> Step[Any] | None:
        """The next finished step of any member; None when all have ended."""
        try:
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
            await self.cancel()
            raise
        await self.cancel()
        if self._fatal is not None:
            raise self._fatal
        return self._steps.popleft() if self._steps else None

    async def cancel(self) -> None:
        """End all tasks and wait until they have; a cancellation meanwhile is passed on afterwards."""
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
        if interrupted is not None:
            raise interrupted
