"""The usage of a model call: one shape for all providers and counters."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Tokens, and dollars if the provider reports them.

    `input` includes cached tokens.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached, cost)


def dollars(cost: float | None, *, is_incomplete: bool = False) -> str:
    """Format dollars; empty if the price is unknown.

    `is_incomplete`: a part of the price is unknown or an estimate.
    """
    if cost is None or (is_incomplete and not cost):
        return ""
    about = "about " if is_incomplete else ""
    return f"{about}${cost:.2f}" if cost >= 0.01 or not cost else f"{about}${cost:.4f}"
