"""`atomic chat --plain` on the scripted engine."""

from __future__ import annotations

import sys

from atomic.cli.plain_chat import talk
from atomic.tui.main import ChatRequest
from tests.tui.terminal.scripted_screen import ENGINE

if __name__ == "__main__":
    sys.exit(talk(ChatRequest(), ENGINE))
