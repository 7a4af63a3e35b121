"""An agent that tries a failed call of the model for ever, and says so only in its log, is not waited for for ever."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from atomic.providers.acp.limits import limit_in

PATIENCE = 30.0  # seconds from the first failure, without a success since
_SLACK = 1.0  # what was said before the failure may be heard behind it: they come by two streams
_TRIES = 4  # before that many, only a limit is a reason to give up: a model may be silent for long

# As OpenCode logs it. Titles are made by small calls besides; they do not matter.
_FAILURE = re.compile(r'message="stream error".* small=false .*?error\.error="?(?:AI_\w+: )?(.*?)"?\s*$')


class Complaints:
    """Hears the log. `worked` tells when the work last went on, `moved` when the agent last said anything."""

    def __init__(self, *, worked: Callable[[], float], moved: Callable[[], float]) -> None:
        self._worked, self._moved = worked, moved
        self._clock = asyncio.get_running_loop().time
        self._rest = self._words = ""
        self._first = self._last = 0.0
        self._count = 0
        self._news = asyncio.Event()

    def hear(self, log: bytes) -> None:
        """A piece of the log."""
        *lines, self._rest = (self._rest + log.decode(errors="replace")).split("\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            if found := _FAILURE.search(line):
                self._note(found[1])

    def forget(self) -> None:
        """What was is over: another turn begins, or one of the tries was served."""
        self._count = 0
        self._news.clear()

    async def run_out(self) -> str:
        """Wait until there is no hope left, and say what failed."""
        while True:
            await self._news.wait()
            if self._was_served():
                self.forget()
            elif self._is_hopeless():
                return self._words
            else:
                await asyncio.sleep(0.5)

    def _was_served(self) -> bool:
        return self._worked() > self._first + _SLACK

    def _is_hopeless(self) -> bool:
        if self._moved() > self._last + _SLACK or self._clock() - self._first < PATIENCE:
            return False
        return self._count >= _TRIES or limit_in(self._words) is not None

    def _note(self, words: str) -> None:
        self._words, self._last = words, self._clock()
        if self._count == 0 or self._was_served():
            self._count, self._first = 0, self._last
        self._count += 1
        self._news.set()
