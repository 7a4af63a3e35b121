"""The caps of a run and the limits of its turns."""

from __future__ import annotations

import msgspec

CHARACTERS_PER_TOKEN = 3  # for an agent that reports no tokens; source code has fewer per token than prose
GRACE = 120.0  # seconds that a turn at work has after --max-time
TURN_LIMIT = 2 * 3600.0
SHORT_TURN_LIMIT = 1800.0  # of roles that only read
SHORT_ROLES = ("planner", "reviewer")


class Caps(msgspec.Struct, frozen=True):
    """The caps of a run with its resumes, and the limits of each turn; None: no limit, or the default."""

    max_cost: float | None = None  # dollars
    max_tokens: int | None = None
    max_time: float | None = None  # seconds
    turn_limit: float | None = None  # seconds of one turn; None: by role; 0: no limit
    idle_limit: float | None = None  # seconds without activity of the agent; 0 or None: no limit
    grace: float | None = None  # seconds after max_time until a turn at work is interrupted

    def turn_limit_of(self, role: str) -> float | None:
        """Return the seconds that a turn of a role may take; None: no limit."""
        if self.turn_limit is not None:
            return self.turn_limit or None
        return SHORT_TURN_LIMIT if role in SHORT_ROLES else TURN_LIMIT

    @property
    def grace_seconds(self) -> float:
        return GRACE if self.grace is None else self.grace
