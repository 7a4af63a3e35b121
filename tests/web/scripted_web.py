"""The screen in a browser, on the scripted engine.

`serve` runs the server, which starts a `screen` for each browser.
"""

from __future__ import annotations

import os
import sys

from tests.tui.terminal.scripted_screen import ENGINE

if __name__ == "__main__":
    if sys.argv[1] == "serve":
        from atomic.web.server import run_server

        sys.exit(run_server((sys.executable, "-m", "tests.web.scripted_web", "screen"), 0))
    from atomic.tui.main import ChatRequest
    from atomic.web.screen_process import run

    os._exit(run(ChatRequest(), ENGINE))
