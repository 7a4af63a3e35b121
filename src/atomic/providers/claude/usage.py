"""Tokens and dollars, from the program's ways to count them."""

from __future__ import annotations

from atomic.providers.claude.wire import Result, Tokens
from atomic.providers.events import Usage


def usage_of(start: Tokens | None, end: Tokens | None = None) -> Usage:
    """What a call of the model took: as told when it began, and again, more exactly, when it was over."""
    start, end = start or Tokens(), end or Tokens()
    read = _newer(start.cache_read_input_tokens, end.cache_read_input_tokens)
    written = _newer(start.cache_creation_input_tokens, end.cache_creation_input_tokens)
    return Usage(
        input=_newer(start.input_tokens, end.input_tokens) + read + written,
        output=_newer(start.output_tokens, end.output_tokens),
        cached=read,
    )


def spent(result: Result) -> Usage:
    """What was used since the result before, by the agent and all its sub-agents."""
    if result.spent is None:  # a version that does not tell: the tokens of the agent alone, and no dollars
        return usage_of(result.usage)
    total = Usage()
    for model in result.spent.values():
        total += Usage(
            input=model.input_tokens + model.cache_read_input_tokens + model.cache_creation_input_tokens,
            output=model.output_tokens,
            cached=model.cache_read_input_tokens,
            cost=model.cost,
        )
    return total


def _newer(before: int | None, after: int | None) -> int:
    return (before if after is None else after) or 0
