"""Start the screen: first frame, then the supervisor, and in its child process the app."""

from __future__ import annotations

import os

from atomic.tui.first_frame import frame_here
from atomic.tui.terminal import KEYBOARD, SCREEN, Terminal

TYPE_CHECKING = False  # importing typing would delay the first frame
if TYPE_CHECKING:
    from collections.abc import Callable

    from atomic.tui.supervisor import Report

    RunScreen = Callable[["ChatRequest", Terminal, Report], int]


class ChatRequest:
    """Options from the command line."""

    def __init__(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        theme: str | None = None,
        resume: str | None = None,
        record: str | None = None,
        prompt: str = "",
    ) -> None:
        self.agent = agent
        self.model = model
        self.theme = theme
        self.resume = resume
        self.record = record
        self.prompt = prompt

    def engine_arguments(self) -> list[str]:
        """Return the engine's command-line arguments. The link passes the session to resume."""
        given = {"--agent": self.agent, "--model": self.model, "--record": self.record}
        return [word for name, value in given.items() if value is not None for word in (name, value)]


def is_terminal() -> bool:
    """Return whether input and output are a terminal."""
    return os.isatty(KEYBOARD) and os.isatty(SCREEN)


def show(request: ChatRequest, run_screen: RunScreen | None = None) -> int:
    """Show the screen until it ends and return the exit code."""
    terminal = Terminal()
    try:
        terminal.take(frame_here())
        from atomic.tui.supervisor import supervise

        return supervise(terminal, lambda report: (run_screen or _run_screen)(request, terminal, report))
    finally:
        if terminal.is_taken:
            terminal.give_back()


def _run_screen(request: ChatRequest, terminal: Terminal, report: Report) -> int:
    from atomic.tui.screen import run_screen

    return run_screen(request, terminal, report)
