"""The screen's process for a browser: `python -m atomic.web.screen_process REQUEST`.

It writes textual-serve's packets to standard output and reads keys from standard input.
The end of its input means that the server has ended, even by `kill -9`; then it ends
too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from textual import messages
from textual.drivers.web_driver import WebDriver

from atomic.base.errors import ExitCode
from atomic.config import ConfigError
from atomic.tui.driver import OrderedKeys
from atomic.tui.main import ChatRequest
from atomic.tui.screen import make_app
from atomic.tui.supervisor import Report, resume_hints, tell

GRACE = 5.0  # seconds to end normally after the server has ended


class BrowserDriver(OrderedKeys, WebDriver):
    """Textual's web driver, which by itself does not end with its server."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.post_message(messages.ExitApp())
            timer = threading.Timer(GRACE, os._exit, (1,))
            timer.daemon = True
            timer.start()

    def stop_application_mode(self) -> None:
        with suppress(OSError):  # the server has ended
            super().stop_application_mode()

    def write(self, data: str) -> None:
        try:
            super().write(data)
        except OSError:
            self.exit_event.set()  # the server has ended, and the end of input ends the app


def run(request: ChatRequest, program: Sequence[str] | None = None) -> int:
    """Run the screen and print on standard error how to resume.

    The server shows it in its terminal.
    """
    report = Report(os.open(os.devnull, os.O_WRONLY), -1)
    try:
        app = make_app(request, "", report, program)
    except ConfigError as error:
        tell(f"atomic: {error}\n")
        return ExitCode.USAGE
    app.driver_class = BrowserDriver
    asyncio.run(app.run_async())
    tell("".join(f"{line}\n" for line in resume_hints(report.last_word, report.ways)))
    return app.return_code or 0


if __name__ == "__main__":
    code = run(ChatRequest(**msgspec.json.decode(sys.argv[1])))
    os._exit(code)  # do not wait for the input thread
