"""Terminal driver: Textual's own driver with five differences.

* The first frame already switched to the alternate screen, so it is not entered again.
  Keys typed since then are processed first.
* It waits for input instead of polling ten times a second, so an idle screen has no
  timer. End of input ends the screen.
* Ctrl+C twice within a second is reported to the supervisor from the input thread, so
  it works even if the event loop is stuck.
* Closing a terminal sends SIGCONT as well as SIGHUP: only a suspended screen resumes.
* The terminal attributes that Textual saves are already ours. The user's are restored
  on exit.
"""

from __future__ import annotations

import os
import select
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from time import monotonic
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from atomic.base.errors import ExitCode
from atomic.tui.background import BackgroundFilter
from atomic.tui.key_order import OrderedKeys
from atomic.tui.supervisor import Report
from atomic.tui.terminal import ALTERNATE_SCREEN, Terminal

TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
_TICK = 0.05  # seconds after which a lone Esc counts as a key


def driver_for(
    terminal: Terminal, report: Report, ahead: bytes, on_background: Callable[[str], None]
) -> type[LinuxDriver]:
    """Return a driver class for this terminal. `ahead` holds bytes typed before it starts."""

    class ScreenDriver(_ScreenDriver):
        def __init__(self, app: App[Any], **options: Any) -> None:
            super().__init__(app, **options)
            self.terminal = terminal
            self.report = report
            self.ahead = ahead
            self.on_background = on_background

    return ScreenDriver


class _ScreenDriver(OrderedKeys, LinuxDriver):
    terminal: Terminal
    report: Report
    ahead: bytes
    on_background: Callable[[str], None]

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)  # pyright: ignore[reportUnknownMemberType]  # upstream does not say of what
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__  # standard error is the supervisor's file
        self._is_first = True
        self._last_ctrl_c = float("-inf")
        self._stop_reading = -1
        self._reading = -1

    def write(self, data: str) -> None:
        if self._is_first and data == ALTERNATE_SCREEN:
            return
        super().write(data)

    def start_application_mode(self) -> None:
        self._reading, self._stop_reading = os.pipe()
        super().start_application_mode()
        self.attrs_before = self.terminal.before
        if not self._is_first:
            self._app.call_later(self._app.refresh, layout=True)  # after a suspend the screen is blank
        self._is_first = False
        self.report.shown(True)

    def close(self) -> None:
        super().close()
        self.report.shown(False)  # only now is everything written

    def _sigcont_application(self, *_: object) -> None:
        if self._must_signal_resume:  # closing the terminal sends SIGCONT to screens that were never suspended
            self.resume_application_mode()

    def disable_input(self) -> None:
        if self._stop_reading >= 0:
            os.close(self._stop_reading)
            self._stop_reading = -1
        super().disable_input()

    def run_input_thread(self) -> None:
        """Read input and dispatch events until the screen ends or the terminal closes."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        background = BackgroundFilter(self.on_background)
        data = self.ahead
        self.ahead = b""
        while True:
            for event in parser.feed(text) if (text := decode(background.strip(data))) else ():
                self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
            half = parser._timeout_time  # pyright: ignore[reportPrivateUsage]  # when half a sequence is given up
            is_open = background.is_open or half is not None
            ready = select.select([self.fileno, self._reading], [], [], _TICK if is_open else None)[0]
            if self._reading in ready:
                break
            data = b""
            if self.fileno in ready and not (data := self._read()):
                self._terminal_is_gone()
                break
        os.close(self._reading)

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, 64 * 1024)
        except OSError:
            return b""

    def _terminal_is_gone(self) -> None:
        self._app.call_later(self._app.exit, None, ExitCode.HUNG_UP)

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key) and message.key == "ctrl+c":
            now = monotonic()
            if now - self._last_ctrl_c < TWICE:
                self.report.leave()
            self._last_ctrl_c = now
        elif isinstance(message, events.Key | events.Paste):
            self._last_ctrl_c = float("-inf")  # another key in between ends the pair
        super().process_message(message)
