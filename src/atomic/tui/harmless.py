"""Text from outside as cells of the screen: cleaned like everything that a terminal sees, and of a certain width."""

from __future__ import annotations

from atomic import terminal

_TAB = 4


def harmless(text: str) -> str:
    """Return a text that a terminal only shows; its lines stay lines, tabs become spaces."""
    if text.isascii() and text.isprintable():
        return text
    return terminal.without_joiners(terminal.harmless(text)).expandtabs(_TAB)


def one_line(text: str) -> str:
    """Return a text as one line."""
    return harmless(" ".join(text.split()))
