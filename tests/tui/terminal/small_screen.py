"""The supervisor with `SmallApp` in place of the real screen."""

from __future__ import annotations

import sys

from atomic.tui.main import ChatRequest, show
from atomic.tui.supervisor import Report
from atomic.tui.terminal import Terminal


def run(request: ChatRequest, terminal: Terminal, report: Report) -> int:
    from atomic.tui.screen import run_app
    from tests.tui.terminal.small_app import SmallApp

    return run_app(lambda background: SmallApp(background, report), terminal, report)


if __name__ == "__main__":
    sys.exit(show(ChatRequest(), run))
