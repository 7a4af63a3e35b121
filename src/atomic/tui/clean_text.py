"""Clean untrusted text for the screen."""

from __future__ import annotations

from atomic.base import terminal

_TAB = 4


def harmless(text: str) -> str:
    """Return text that a terminal can only display. Keeps line breaks, expands tabs."""
    if text.isascii() and text.isprintable():
        return text
    return terminal.without_joiners(terminal.harmless(text)).expandtabs(_TAB)


def one_line(text: str) -> str:
    """Return the cleaned text as one line."""
    return harmless(" ".join(text.split()))
