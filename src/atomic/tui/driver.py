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

import asyncio
import os
import re
import select
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.message_pump import MessagePump

from atomic.base.errors import ExitCode
from atomic.tui.supervisor import Report
from atomic.tui.terminal import ALTERNATE_SCREEN, Terminal

# Seconds that a key waits for earlier characters. After that the event loop is stuck
# and the order no longer matters.
_SETTLE = 0.5


class OrderedKeys(Driver):
    """Driver that delivers keys in the order in which they were pressed.

    Textual sends characters to the focused widget and other keys to the widget that
    binds them, each through its own queue: `abc` and Enter that arrive together could
    become Enter and `abc`. Here the input thread delays one kind until the other has
    been delivered.
    """

    _last_kind: bool | None = None  # whether the last key was a character

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key | events.Paste):
            kind = isinstance(message, events.Key) and message.is_printable
            if self._last_kind is not None and kind is not self._last_kind:
                # Wait until earlier keys have passed every queue on their way.
                done = Event()
                asyncio.run_coroutine_threadsafe(self._walk(done), self._loop)
                done.wait(_SETTLE)
            self._last_kind = kind
        super().process_message(message)

    async def _walk(self, done: Event) -> None:
        """Follow the way of a key: the app, the focused widget, and its ancestors back
        to the app.
        """
        focused = self._app.focused
        way: list[MessagePump] = [self._app, *(focused.ancestors_with_self if focused is not None else ()), self._app]

        def step() -> None:
            if way:
                way.pop(0).call_later(step)
            else:
                done.set()

        step()


_ANSWER = re.compile(rb"\x1b\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\)")
_BEGIN = b"\x1b]11;"
_LONGEST = 80


class BackgroundFilter:
    """Filter for typed bytes that removes the one reply.

    The reply may arrive in parts, late or never.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear
        self._held = b""
        self._is_done = False

    @property
    def is_open(self) -> bool:
        """Return whether bytes are held back that `strip(b"")` would release soon."""
        return 0 < len(self._held) < len(_BEGIN)

    def strip(self, data: bytes) -> bytes:
        """Return the typed bytes without the reply.

        Empty `data` means that no more input arrived in time: bytes that were held back
        are not a reply, so they are returned.
        """
        if self._is_done:
            return data
        is_late = not data and bool(self._held)
        data = self._held + data
        self._held = b""
        if is_late:
            return data
        if match := _ANSWER.search(data):
            self._is_done = True
            self._hear(match[1].decode("ascii", "replace"))
            return data[: match.start()] + data[match.end() :]
        begin = data.rfind(b"\x1b]")
        rest = data[begin:]
        is_unfinished = begin >= 0 and len(rest) <= _LONGEST and rest[: len(_BEGIN)] == _BEGIN[: len(rest)]
        if not is_unfinished:
            return data
        self._held = rest
        return data[:begin]


TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
_TICK = 0.05  # seconds after which a lone Esc counts as a key


def driver_for(
    terminal: Terminal, report: Report, ahead: bytes, on_background: Callable[[str], None]
) -> type[LinuxDriver]:
    """Return a driver class for this terminal.

    `ahead` holds bytes typed before it starts.
    """

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
            if self.fileno in ready:
                with suppress(OSError):
                    data = os.read(self.fileno, 64 * 1024)
                if not data:  # the terminal is gone
                    self._app.call_later(self._app.exit, None, ExitCode.HUNG_UP)
                    break
        os.close(self._reading)

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key) and message.key == "ctrl+c":
            now = monotonic()
            if now - self._last_ctrl_c < TWICE:
                self.report.leave()
            self._last_ctrl_c = now
        elif isinstance(message, events.Key | events.Paste):
            self._last_ctrl_c = float("-inf")  # another key in between ends the pair
        super().process_message(message)
