"""The caps of a run, the limits of its turns, and the errors when one is reached."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.text import duration

OnLimit = Literal["wait", "stop", "switch"]
Caller = Literal["command", "python"]
"""Who has set the caps, and reads how to change them: a flag, or an argument of `agents`."""

CHARACTERS_PER_TOKEN = 3  # for an agent that reports no tokens; source code has fewer per token than prose
GRACE = 120.0  # seconds that a running turn has after --max-time
TURN_LIMIT = 2 * 3600.0
SHORT_TURN_LIMIT = 1800.0  # of roles that only read
SHORT_ROLES = ("planner", "reviewer")
_FIRST = {"max_cost": 1.0, "max_tokens": 100_000, "max_time": 600.0}  # offered where a cap is 0: nothing was left


class Caps(msgspec.Struct, frozen=True):
    """The caps of a run with its resumes, and the limits of each turn.

    None: no limit, or the default.
    """

    max_cost: float | None = None  # dollars
    max_tokens: int | None = None
    max_time: float | None = None  # seconds
    turn_limit: float | None = None  # seconds of one turn; None: by role; 0: no limit
    idle_limit: float | None = None  # seconds without activity of the agent; 0 or None: no limit
    grace: float | None = None  # seconds after max_time until a running turn is interrupted

    def turn_limit_of(self, role: str) -> float | None:
        """Return the seconds that a turn of a role may take; None: no limit."""
        if self.turn_limit is not None:
            return self.turn_limit or None
        return SHORT_TURN_LIMIT if role in SHORT_ROLES else TURN_LIMIT

    @property
    def grace_seconds(self) -> float:
        return GRACE if self.grace is None else self.grace


class CapReached(AtomicError):
    """A cap is reached: the run pauses. `kind` is the reason of the pause."""

    def __init__(
        self,
        kind: str,
        limit: float,
        spent: float,
        *,
        run: str = "",
        note: str = "",
        cut: str = "",
        caller: Caller = "command",
    ) -> None:
        self.kind = kind
        self.limit = limit
        self.spent = spent
        more = _argument(kind, 2 * max(limit, spent) or _FIRST[kind])
        if caller == "python":
            self.flag = kind
            self.remedy = f'{kind}="{more}"' if kind == "max_time" else f"{kind}={more}"
            self.raise_with = f"resume with agents(…, {self.remedy})"
        else:
            self.flag = f"--{kind.replace('_', '-')}"
            self.remedy = f"{self.flag} {more}"
            self.raise_with = f"atomic resume {run or 'ID'} {self.remedy}"
        cut = f"; the running {cut} was interrupted, and its work is kept" if cut else ""
        super().__init__(
            f"{self.flag} is reached: {_shown(kind, spent)} of {_shown(kind, limit)} spent{note}{cut}"
            f" (to continue: {self.raise_with})"
        )


def _shown(kind: str, value: float) -> str:
    if kind == "max_time":
        return duration(value)
    if kind == "max_tokens":
        return f"{int(value):,} tokens"
    return f"${value:,.2f}" if value >= 0.01 or not value else f"${value:.4f}"


def _argument(kind: str, value: float) -> str:
    """Return a value for a cap's flag, rounded up to one or two digits."""
    if kind == "max_time":
        return duration(math.ceil(value))
    step = 10.0 ** (math.floor(math.log10(value)) - 1) if value > 0 else 1.0
    rounded = math.ceil(value / step - 1e-9) * step
    return str(math.ceil(rounded)) if kind == "max_tokens" else f"{rounded:.10g}"
