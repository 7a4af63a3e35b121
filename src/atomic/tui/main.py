"""`atomic` in a terminal: the first frame, then the supervisor, and in its child the screen."""

from __future__ import annotations

import os

from atomic.tui.first_frame import frame_here
from atomic.tui.terminal import KEYBOARD, SCREEN, Terminal

TYPE_CHECKING = False  # typing itself would cost the first frame
if TYPE_CHECKING:
    from collections.abc import Callable

    from atomic.tui.supervisor import Report

    RunScreen = Callable[["ChatRequest", Terminal, Report], int]


class ChatRequest:
    """What the command line asks for."""

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
        self.agent, self.model, self.theme = agent, model, theme
        self.resume, self.record, self.prompt = resume, record, prompt

    def engine_arguments(self) -> list[str]:
        """What the engine is started with; the conversation to go on with is the link's to say."""
        given = {"--agent": self.agent, "--model": self.model, "--record": self.record}
        return [word for name, value in given.items() if value is not None for word in (name, value)]


def is_terminal() -> bool:
    """Whether there is somebody who types and sees."""
    return os.isatty(KEYBOARD) and os.isatty(SCREEN)


def show(request: ChatRequest, run_screen: RunScreen | None = None) -> int:
    """The screen, from the first frame to the last word; the exit code."""
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
