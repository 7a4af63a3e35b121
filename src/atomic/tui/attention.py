"""Notify a user who looks at another window: terminal bell, notification and title."""

from __future__ import annotations

import os
from collections.abc import Mapping

_WITH_MESSAGES = ("iterm", "wezterm", "ghostty", "kitty")  # terminals that show OSC 9 as a notification


def call(words: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the escape sequence that notifies the user. `words` must be trusted text."""
    terminal = f"{environment.get('TERM_PROGRAM', '')} {environment.get('TERM', '')}".lower()
    if not environment.get("TMUX") and any(name in terminal for name in _WITH_MESSAGES):
        return f"\x1b]9;{_plain(words)}\x07"
    return "\x07"


def title(words: str) -> str:
    """Return the escape sequence that sets the terminal's title."""
    return f"\x1b]0;{_plain(words)}\x07"


def _plain(words: str) -> str:
    return "".join(sign for sign in words if sign.isprintable())
