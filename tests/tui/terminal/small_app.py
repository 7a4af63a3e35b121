"""The app of `small_screen`: a status line and an input."""

from __future__ import annotations

import os
import signal
import time

from textual.app import App, ComposeResult
from textual.widgets import Input, Static

from atomic.tui.supervisor import Report


class SmallApp(App[None]):
    """An app that ends on command: by exit, exception or signal."""

    def __init__(self, background: str, report: Report) -> None:
        super().__init__()
        self.colour = background
        self.report = report

    def compose(self) -> ComposeResult:
        yield Static("", markup=False, id="status")
        yield Input()

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.set_status(f"READY on {self.colour or 'unknown'}")
        self.report.way("chat", "Resume with: atomic chat --resume abc")

    def set_status(self, text: str) -> None:
        self.query_one("#status", Static).update(text)

    def set_background(self, colour: str) -> None:
        self.set_status(f"READY on {colour}, late")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        match event.value:
            case "exception":
                raise RuntimeError("boom")
            case "exit":
                self.report.last("Closed normally.\nResume with: atomic chat --resume xyz")
                self.exit()
            case "code":
                self.exit(None, 5)
            case "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "stuck":
                self.set_status("STUCK")
                self.call_after_refresh(self.set_timer, 0.05, lambda: time.sleep(600))
            case "suspend":
                self.action_suspend_process()
            case _:
                self.set_status(f"GOT {event.value}")
