"""Compute a turn's usage and the context size from the session's counters."""

from __future__ import annotations

from atomic.providers.acp.messages import Tokens, UsageUpdate
from atomic.providers.base import ContextUsage
from atomic.providers.events import Usage

_DOLLARS = "USD"


class Meters:
    """Counters of a session, from which each turn's share is computed.

    `adds_up` means that the agent reports the tokens of all turns since its program
    started.
    """

    def __init__(self, *, adds_up: bool, is_new: bool) -> None:
        self.context = ContextUsage()
        self._adds_up = adds_up
        self._tokens = Usage()  # reported so far by this program
        self._cost: float | None = None  # of the session, as last reported
        # The earlier cost of a resumed session is unknown.
        self._paid: float | None = 0.0 if is_new else None

    def program_started(self) -> None:
        self._tokens = Usage()

    def update(self, usage: UsageUpdate) -> None:
        self.context = ContextUsage(usage.used, usage.size)
        if usage.cost is not None and usage.cost.currency == _DOLLARS:
            self._cost = usage.cost.amount

    def interim(self) -> Usage | None:
        """Return the cost of the turn since the last call; None if unknown or 0."""
        cost = self._turn_cost()
        return Usage(cost=cost) if cost else None

    def turn(self, reported: Tokens | None) -> Usage | None:
        """Return the usage of an ended turn without the interim cost.

        None if unknown.
        """
        tokens = self._turn_tokens(reported)
        cost = self._turn_cost()
        if tokens is None and not cost:
            return None
        tokens = tokens or Usage()
        return Usage(tokens.input, tokens.output, tokens.cached, cost)

    def _turn_tokens(self, reported: Tokens | None) -> Usage | None:
        if reported is None:
            return None
        now = _tokens_of(reported)
        before = self._tokens
        self._tokens = now
        if not self._adds_up:
            return now
        return Usage(
            max(0, now.input - before.input), max(0, now.output - before.output), max(0, now.cached - before.cached)
        )

    def _turn_cost(self) -> float | None:
        if self._cost is None:
            return None
        before = self._paid
        self._paid = self._cost
        return None if before is None else max(0.0, self._cost - before)


def _tokens_of(reported: Tokens) -> Usage:
    """Convert tokens; the total shows whether cached tokens are part of the input."""
    rest = reported.total_tokens - reported.output_tokens - (reported.thought_tokens or 0)
    return Usage(max(reported.input_tokens, rest), reported.output_tokens, reported.cached_read_tokens or 0)
