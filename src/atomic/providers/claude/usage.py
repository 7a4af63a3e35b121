"""Read tokens and cost from the program's messages."""

from __future__ import annotations

from atomic.providers.claude.messages import Result, Tokens
from atomic.providers.events import Usage


def usage_of(start: Tokens | None, end: Tokens | None = None) -> Usage:
    """Return the usage of one model call: reported at its start, corrected at its end."""
    start = start or Tokens()
    end = end or Tokens()
    read = _newer(start.cache_read_input_tokens, end.cache_read_input_tokens)
    written = _newer(start.cache_creation_input_tokens, end.cache_creation_input_tokens)
    return Usage(
        input=_newer(start.input_tokens, end.input_tokens) + read + written,
        output=_newer(start.output_tokens, end.output_tokens),
        cached=read,
    )


def spent(result: Result) -> Usage:
    """Return the usage since the previous result, of the agent and all sub-agents."""
    if result.spent is None:  # older versions report only the agent's tokens, without cost
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
