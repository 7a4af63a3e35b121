"""The terminal as we found it: taken with its first picture, given back as it was, whatever happened in between."""

from __future__ import annotations

import os
import signal
import termios

TYPE_CHECKING = False  # typing itself would cost the first frame
if TYPE_CHECKING:
    from typing import Any

KEYBOARD, SCREEN = 0, 1

ALTERNATE_SCREEN = "\x1b[?1049h"
# Title kept for later, other screen, no cursor (the prompt draws its own), and: which colour is behind the text?
TAKE = f"\x1b[22;0t{ALTERNATE_SCREEN}\x1b[?25l"
ASK_BACKGROUND = "\x1b]11;?\x1b\\"

# A frame that was not finished, the mouse in all its ways, focus, paste, in-band sizes; lines wrap again, xterm's keys.
_MODES_OFF = (
    "".join(f"\x1b[?{mode}l" for mode in (2026, 1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2048))
    + "\x1b[?7h\x1b[>4;0m"
)
_CANCEL = "\x18"  # CAN: ends a sequence that the screen had half written when it died
_KEYS_OFF = "\x1b[<u"  # kitty keeps the keyboard's modes for each screen: this comes before the other one is left
_LEAVE = "\x1b[?1049l"
_AS_BEFORE = "\x1b[?25h\x1b[0m\x1b[23;0t"
_ARE_YOU_THERE = "\x1b[c"  # every terminal answers; what it sent before, it sent before our modes were off
_PATIENCE = 0.1  # seconds for that answer


class Terminal:
    """Takes a terminal and gives it back; `is_taken` says whether anything of ours may be left on it."""

    def __init__(self) -> None:
        self.before: list[Any] = termios.tcgetattr(KEYBOARD)
        self.is_taken = False

    def take(self, frame: str) -> None:
        """Show the first frame. What was typed already is kept for the screen, and so is what comes from now on."""
        self.is_taken = True
        termios.tcsetattr(KEYBOARD, termios.TCSANOW, _raw(self.before))
        write(TAKE + frame + ASK_BACKGROUND)

    def give_back(self, *, has_left: bool = False) -> None:
        """All modes off, the cursor shown, lines and echo as before; nothing unread reaches the shell.

        `has_left`: the screen has ended in order, and the other screen is gone already.
        """
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the shell may have taken the foreground back
        try:
            write(_CANCEL + _MODES_OFF + ("" if has_left else _KEYS_OFF + _LEAVE) + _AS_BEFORE)
            if not has_left:
                _await_silence()
            termios.tcsetattr(KEYBOARD, termios.TCSAFLUSH, self.before)
        except (OSError, termios.error):
            pass  # the terminal has gone: there is nothing to give back
        self.is_taken = False


def write(text: str) -> None:
    """Write all of it to the screen."""
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(SCREEN, data) :]


def read_ready() -> bytes:
    """What waits to be read; it waits for nothing."""
    import select

    pieces: list[bytes] = []
    while select.select([KEYBOARD], [], [], 0)[0]:
        piece = os.read(KEYBOARD, 64 * 1024)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _await_silence() -> None:
    """Read until the terminal has heard that the mouse is off: bytes on their way must not reach the shell."""
    import select
    from time import monotonic

    write(_ARE_YOU_THERE)
    end, heard = monotonic() + _PATIENCE, b""
    while (left := end - monotonic()) > 0 and not _is_answered(heard):
        if not select.select([KEYBOARD], [], [], left)[0]:
            return
        piece = os.read(KEYBOARD, 64 * 1024)
        if not piece:
            return
        heard = heard[-64:] + piece


def _is_answered(heard: bytes) -> bool:
    begin = heard.rfind(b"\x1b[?")
    return begin >= 0 and b"c" in heard[begin:]


def _raw(before: list[Any]) -> list[Any]:
    """Keys as they are pressed, none of them a signal, none of them echoed."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = before
    iflag &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    lflag &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    cc = list(cc)
    cc[termios.VMIN], cc[termios.VTIME] = 1, 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]
