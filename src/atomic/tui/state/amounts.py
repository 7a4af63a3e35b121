"""Format tokens and dollars in a few characters."""

from __future__ import annotations

from atomic.base.usage import Usage


def amount(tokens: int) -> str:
    """Return a number of tokens as 950, 68k or 1.2M."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.0f}k" if tokens < 999_500 else f"{tokens / 1_000_000:.1f}M"


def spent(usage: Usage) -> str:
    """Return the cost if it is known, otherwise the tokens, otherwise an empty string."""
    if usage.cost is not None:
        return f"${usage.cost:.2f}"
    if usage.input or usage.output:
        return f"↑{amount(usage.input)} ↓{amount(usage.output)}"
    return ""
