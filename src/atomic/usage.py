"""What a call of a model took: one shape, whoever reports it and whoever counts it."""

from __future__ import annotations

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Tokens, and dollars where the provider knows them. `input` has the cached ones in it."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(self.input + other.input, self.output + other.output, self.cached + other.cached, cost)
