"""Start the screen: first frame, then the supervisor, and in its child process the app."""

from __future__ import annotations

import os

from atomic.tui.terminal import KEYBOARD, SCREEN, Terminal

TYPE_CHECKING = False  # importing typing would delay the first frame
if TYPE_CHECKING:
    from collections.abc import Callable

    from atomic.tui.supervisor import Report

    RunScreen = Callable[["ChatRequest", Terminal, Report], int]

DIM = "\x1b[2m"
REVERSE = "\x1b[7m"
PLAIN = "\x1b[0m"
HINT = "⏎ send · Ctrl+J newline · / commands · @ files · ! shell · ? keys"
NAME = "atomic"


def first_frame(columns: int, rows: int, *, colours: bool) -> str:
    """Return header, prompt and key hints in plain ANSI, at the rows that the app
    paints next.

    It is drawn before anything heavy is imported.
    """
    lines = {1: f" {NAME}", rows - 2: "─" * columns, rows - 1: " › ", rows: f" {HINT}"}
    dim, plain = (DIM, PLAIN) if colours else ("", "")
    frame = ""
    for row, text in sorted(lines.items()):
        if len(text) > columns:
            text = text[: max(0, columns - 1)] + "…"
        if row >= 1:
            frame += f"\x1b[{row};1H{dim}{text}{plain}"
    return frame + (f"\x1b[{rows - 1};4H{REVERSE} {PLAIN}" if rows > 1 and columns > 3 else "")


def frame_here() -> str:
    """Return the first frame for this terminal."""
    size = os.get_terminal_size(1)
    return first_frame(size.columns or 80, size.lines or 24, colours=not os.environ.get("NO_COLOR"))


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
        """Return the engine's command-line arguments.

        The link passes the session to resume.
        """
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

        def work(report: Report) -> int:
            """Import the app and run it, in the child process."""
            if run_screen is not None:
                return run_screen(request, terminal, report)
            from atomic.tui import screen

            return screen.run_screen(request, terminal, report)

        return supervise(terminal, work)
    finally:
        if terminal.is_taken:
            terminal.give_back()
