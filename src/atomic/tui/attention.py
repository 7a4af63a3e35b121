"""Call somebody who looks elsewhere: a bell or a message of the terminal, and its title."""

from __future__ import annotations

import os
from collections.abc import Mapping

_WITH_MESSAGES = ("iterm", "wezterm", "ghostty", "kitty")  # terminals that show OSC 9 as a message


def call(words: str, environment: Mapping[str, str] = os.environ) -> str:
    """What to write to the terminal so that somebody looks; `words` are our own."""
    terminal = f"{environment.get('TERM_PROGRAM', '')} {environment.get('TERM', '')}".lower()
    if not environment.get("TMUX") and any(name in terminal for name in _WITH_MESSAGES):
        return f"\x1b]9;{_plain(words)}\x07"
    return "\x07"


def title(words: str) -> str:
    """What to write to the terminal so that its title says this."""
    return f"\x1b]0;{_plain(words)}\x07"


def _plain(words: str) -> str:
    return "".join(sign for sign in words if sign.isprintable())
