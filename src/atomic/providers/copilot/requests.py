"""Background work for an agent during a turn: custom tools, questions, permissions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from atomic.providers.errors import ProviderError

_log = logging.getLogger(__name__)


class TurnTasks:
    """Tasks that are cancelled at the end of the turn."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def cancel(self) -> None:
        """Cancel all running tasks and wait for them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("copilot: %s", error, exc_info=None if isinstance(error, ProviderError) else error)
