"""What a turn costs and how full the context is, out of what agents tell of the session."""

from __future__ import annotations

from atomic.providers.acp.messages import Tokens, UsageUpdate
from atomic.providers.base import ContextUsage
from atomic.providers.events import Usage

_DOLLARS = "USD"


class Meters:
    """Sums of a session, from which each turn's share is taken.

    `adds_up`: the tokens that the agent tells with a turn are those of all turns since its program began.
    """

    def __init__(self, *, adds_up: bool, is_new: bool) -> None:
        self.context = ContextUsage()
        self._adds_up = adds_up
        self._tokens = Usage()  # told so far by this program
        self._cost: float | None = None  # of the session, as told last
        # Of a session that began elsewhere nobody says what it had cost before.
        self._paid: float | None = 0.0 if is_new else None

    def program_started(self) -> None:
        self._tokens = Usage()

    def update(self, told: UsageUpdate) -> None:
        self.context = ContextUsage(told.used, told.size)
        if told.cost is not None and told.cost.currency == _DOLLARS:
            self._cost = told.cost.amount

    def interim(self) -> Usage | None:
        """What the turn cost since the last time; None if nobody says, or nothing."""
        cost = self._turn_cost()
        return Usage(cost=cost) if cost else None

    def turn(self, told: Tokens | None) -> Usage | None:
        """What the turn that is over cost, without what was told of it before; None if nobody says."""
        tokens, cost = self._turn_tokens(told), self._turn_cost()
        if tokens is None and not cost:
            return None
        tokens = tokens or Usage()
        return Usage(tokens.input, tokens.output, tokens.cached, cost)

    def _turn_tokens(self, told: Tokens | None) -> Usage | None:
        if told is None:
            return None
        now = _tokens_of(told)
        before, self._tokens = self._tokens, now
        if not self._adds_up:
            return now
        return Usage(
            max(0, now.input - before.input), max(0, now.output - before.output), max(0, now.cached - before.cached)
        )

    def _turn_cost(self) -> float | None:
        before, self._paid = self._paid, self._cost if self._cost is not None else self._paid
        return max(0.0, self._cost - before) if self._cost is not None and before is not None else None


def _tokens_of(told: Tokens) -> Usage:
    """Some count the cached tokens as input, some beside it; the total shows which."""
    rest = told.total_tokens - told.output_tokens - (told.thought_tokens or 0)
    return Usage(max(told.input_tokens, rest), told.output_tokens, told.cached_read_tokens or 0)
