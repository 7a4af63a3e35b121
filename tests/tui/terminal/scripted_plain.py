"""`--plain` on the scripted engine."""

from __future__ import annotations

import sys

from atomic.tui.main import ChatRequest
from atomic.tui.plain import talk
from tests.tui.terminal.scripted_screen import ENGINE

if __name__ == "__main__":
    sys.exit(talk(ChatRequest(), ENGINE))
