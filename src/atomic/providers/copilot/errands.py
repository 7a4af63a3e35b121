"""What is done for an agent while its turn goes on: tools of ours, questions to a person, leave for its own tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from atomic.providers.errors import ProviderError

_log = logging.getLogger(__name__)


class Errands:
    """Tasks that end with the turn, at the latest."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def call_back(self) -> None:
        """Cancel all that are still under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("copilot: %s", error, exc_info=None if isinstance(error, ProviderError) else error)
