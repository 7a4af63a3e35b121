"""Endless Markdown, as a model might stream it. The same seed gives the same text."""

from __future__ import annotations

from collections.abc import Iterator

TEXT = (
    "the login checks a token and issues another one before it expires so that no user has to sign in twice a day "
    "unless the session was revoked in the meantime by an administrator or the password has changed since"
)
WORDS = TEXT.split()
# Characters in one delta.
PIECE = 20


def pieces(seed: int = 0) -> Iterator[str]:
    """Yield deltas of twenty characters."""
    kept = ""
    number = seed
    while True:
        while len(kept) < PIECE:
            kept += _part(number)
            number += 1
        yield kept[:PIECE]
        kept = kept[PIECE:]


def _part(number: int) -> str:
    """Return a paragraph, or sometimes a heading, a list, a table or code."""
    kind = number % 8
    if kind == 1:
        return f"## Step {number}\n\n"
    if kind == 3:
        return "".join(f"- {_words(number + i, 8)}\n" for i in range(4)) + "\n"
    if kind == 5:
        code = "".join(f"    value_{i} = issue(user, ttl={number + i})\n" for i in range(6))
        return f"```python\nasync def step_{number}(user: User) -> Token:\n{code}    return value_0\n```\n\n"
    if kind == 7:
        rows = "".join(f"| {WORDS[(number + i) % len(WORDS)]} | {number * i} | `x{i}` |\n" for i in range(4))
        return f"| name | count | code |\n| --- | ---: | --- |\n{rows}\n"
    return f"{_words(number, 40)} with **weight** and `code`.\n\n"


def _words(begin: int, count: int) -> str:
    return " ".join(WORDS[(begin * 7 + i) % len(WORDS)] for i in range(count))
