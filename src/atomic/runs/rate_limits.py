"""The rate limits of providers: which are limited, and when they are tried again.

A turn waits until the wall clock reaches the reset of its provider. So a suspended
machine or a restarted Atomic continues at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from atomic.base.errors import AtomicError
from atomic.base.text import local_time
from atomic.runs.limits import Caller, OnLimit
from atomic.sessions.facts import Facts

LOOK_SECONDS = 15.0  # between looks at the wall clock: a sleep does not count time in suspend
LATE_SECONDS = 5.0  # spreads the runs that wait for the same reset
FIRST_WAIT = 60.0  # seconds, if a provider does not report its reset; doubled each time
LONGEST_WAIT = 900.0
LONGEST_RESET = 8 * 86400.0  # usage windows are a week at most; a later reset is a mistake
_PARKED = "parked"


class Parked(AtomicError):
    """A provider is rate-limited until `reset_at` (Unix time), and `--on-limit stop`
    forbids to wait.
    """

    def __init__(self, provider: str, reset_at: float, *, run: str = "", caller: Caller = "command") -> None:
        self.provider = provider
        self.reset_at = reset_at
        if caller == "python":
            self.remedy = 'on_limit="wait"'
            wait = f"resume with agents(…, {self.remedy})"
        else:
            self.remedy = "--on-limit wait"
            wait = f"atomic resume {run or 'ID'} {self.remedy}"
        until = local_time(reset_at, with_zone=True)
        super().__init__(f"{provider} has reached its usage limit until {until} (to wait for it: {wait})")


class RateLimits:
    """The rate-limited providers of a run.

    `warn` shows a message to the user, once. Time in `resting` does not count as work.
    """

    def __init__(
        self,
        on_limit: OnLimit,
        *,
        run: str,
        caller: Caller = "command",
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        warn: Callable[[str], object],
        resting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._on_limit = on_limit
        self._run = run
        self._caller: Caller = caller
        self._clock = clock
        self._sleep = sleep
        self._warn = warn
        self._resting = resting
        self._facts: Facts | None = None
        self._parked: dict[str, float] = {}  # by provider: Unix time of its reset
        self._waits: dict[str, float] = {}  # by provider without a reset: seconds of the last wait

    def open(self, facts: Facts) -> None:
        """Read the limits that earlier processes met, and keep those of this one."""
        self._facts = facts
        # Journals of earlier versions may have a limit of all providers, under "".
        kept = {provider: until for provider, until in facts.get(_PARKED, {}).items() if provider}
        self._parked = {**kept, **self._parked}

    def adopt(self, until: float, provider: str) -> None:
        """Limit a provider until the Unix time that `session.json` of an older version
        has.

        No effect if the journal knows the limits of the run, or if the time is past or
        too far away to be true.
        """
        now = self._clock()
        if not self.are_known and now < until <= now + LONGEST_RESET:
            self._keep(provider, until)

    @property
    def are_known(self) -> bool:
        """Return whether the journal has the limits of the run."""
        return self._facts is not None and _PARKED in self._facts

    @property
    def parked_until(self) -> float | None:
        """Return the Unix time of the last reset of a rate-limited provider, or None."""
        now = self._clock()
        return max((until for until in self._parked.values() if until > now), default=None)

    def park(self, reset_at: datetime | float | None, provider: str) -> float:
        """Note that a provider is rate-limited, and return the Unix time when it is
        tried again.
        """
        now = self._clock()
        reset = reset_at.timestamp() if isinstance(reset_at, datetime) else reset_at
        if reset is not None and now < reset <= now + LONGEST_RESET:
            self._waits.pop(provider, None)
            until = reset
        else:
            wait = min(2 * self._waits.get(provider, FIRST_WAIT / 2), LONGEST_WAIT)
            self._waits[provider] = wait
            until = now + wait
        self._keep(provider, until)
        return until

    async def provider_for(self, preferred: str, others: Sequence[str] = ()) -> str:
        """Return the provider of the next turn: the preferred one, or with `switch` one
        that is not limited.

        Wait if all are limited. `others` are the configured ones by preference. Raises
        Parked with `--on-limit stop`.
        """
        if self._is_parked(preferred) and self._on_limit == "switch":
            for name in others:
                if not self._is_parked(name):
                    self._warn(f"{preferred} has reached its usage limit: continuing with {name}")
                    return name
            limited = [name for name in others if name in self._parked]
            preferred = min((preferred, *limited), key=self._until)
        await self.wait_for(preferred)
        return preferred

    async def wait_for(self, provider: str) -> None:
        """Wait until a provider is not limited. Raises Parked with `--on-limit stop`."""
        if not self._is_parked(provider):
            return
        if self._on_limit == "stop":
            raise Parked(provider, self._until(provider), run=self._run, caller=self._caller)
        reset = local_time(self._until(provider), with_zone=True)
        self._warn(f"{provider} has reached its usage limit: waiting until {reset}")
        from random import uniform  # imported late: few runs ever wait

        late = uniform(0.0, LATE_SECONDS)
        with self._resting():
            while (left := self._until(provider) + late - self._clock()) > 0:
                await self._sleep(min(left, LOOK_SECONDS))

    def _keep(self, provider: str, until: float) -> None:
        self._parked[provider] = until
        if self._facts is not None:
            self._facts.set(_PARKED, self._parked)

    def _is_parked(self, provider: str) -> bool:
        return self._clock() < self._until(provider)

    def _until(self, provider: str) -> float:
        return self._parked.get(provider, -math.inf)
