"""The real screen on the scripted engine.

python -m tests.tui.terminal.scripted_screen [--resume ID] [PROMPT]
"""

from __future__ import annotations

import sys

from atomic.tui.main import ChatRequest, show
from atomic.tui.supervisor import Report
from atomic.tui.terminal import Terminal

ENGINE = (sys.executable, "-m", "tests.tui.terminal.scripted_engine")


def run(request: ChatRequest, terminal: Terminal, report: Report) -> int:
    from atomic.tui.screen import run_screen

    return run_screen(request, terminal, report, ENGINE)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    resume = arguments.pop(arguments.index("--resume") + 1) if "--resume" in arguments else None
    prompt = " ".join(word for word in arguments if word != "--resume")
    sys.exit(show(ChatRequest(resume=resume, prompt=prompt), run))
