"""Take over the terminal for the first frame, and restore it however the screen ends."""

from __future__ import annotations

import os
import signal
import termios

TYPE_CHECKING = False  # importing typing would delay the first frame
if TYPE_CHECKING:
    from typing import Any

KEYBOARD = 0
SCREEN = 1

ALTERNATE_SCREEN = "\x1b[?1049h"
# Save the title, switch to the alternate screen, hide the cursor (the prompt draws its
# own).
TAKE = f"\x1b[22;0t{ALTERNATE_SCREEN}\x1b[?25l"
ASK_BACKGROUND = "\x1b]11;?\x1b\\"

# Turn off: synchronized output, mouse, focus, paste, in-band sizes. Restore line wrap
# and xterm's keys.
_MODES_OFF = (
    "".join(f"\x1b[?{mode}l" for mode in (2026, 1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2048))
    + "\x1b[?7h\x1b[>4;0m"
)
_CANCEL = "\x18"  # CAN: ends a partial escape sequence of a screen that died
_KEYS_OFF = "\x1b[<u"  # kitty stores keyboard modes per screen: send it before leaving
_LEAVE = "\x1b[?1049l"
_AS_BEFORE = "\x1b[?25h\x1b[0m\x1b[23;0t"
# Every terminal replies. Bytes before the reply were sent before our modes were off.
_ARE_YOU_THERE = "\x1b[c"
_PATIENCE = 0.1  # seconds to wait for the reply


class Terminal:
    """Takes over a terminal and restores it.

    `is_taken` tells whether it may need a restore.
    """

    def __init__(self) -> None:
        self.before: list[Any] = termios.tcgetattr(KEYBOARD)
        self.is_taken = False

    def take(self, frame: str) -> None:
        """Show the first frame. Typed bytes stay in the input buffer for the screen."""
        self.is_taken = True
        termios.tcsetattr(KEYBOARD, termios.TCSANOW, _raw(self.before))
        write(TAKE + frame + ASK_BACKGROUND)

    def give_back(self, *, has_left: bool = False) -> None:
        """Turn off all modes, show the cursor, restore attributes and discard unread
        input.

        `has_left`: the screen has ended in order and has left the alternate screen.
        """
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the shell may have taken the foreground back
        try:
            write(_CANCEL + _MODES_OFF + ("" if has_left else _KEYS_OFF + _LEAVE) + _AS_BEFORE)
            if not has_left:
                _await_silence()
            termios.tcsetattr(KEYBOARD, termios.TCSAFLUSH, self.before)
        except (OSError, termios.error):
            pass  # the terminal is closed: nothing to restore
        self.is_taken = False


def write(text: str) -> None:
    """Write the whole text to the terminal."""
    data = memoryview(text.encode("utf-8", "replace"))
    while data:
        data = data[os.write(SCREEN, data) :]


def read_ready() -> bytes:
    """Return the bytes that are ready to be read, without waiting."""
    import select

    pieces: list[bytes] = []
    while select.select([KEYBOARD], [], [], 0)[0]:
        piece = os.read(KEYBOARD, 64 * 1024)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _await_silence() -> None:
    """Read until the terminal has turned the mouse off: late bytes must not reach the
    shell.
    """
    import select
    from time import monotonic

    write(_ARE_YOU_THERE)
    end = monotonic() + _PATIENCE
    heard = b""
    while (left := end - monotonic()) > 0 and select.select([KEYBOARD], [], [], left)[0]:
        piece = os.read(KEYBOARD, 64 * 1024)
        heard = heard[-64:] + piece
        begin = heard.rfind(b"\x1b[?")
        if not piece or (begin >= 0 and b"c" in heard[begin:]):
            return


def _raw(before: list[Any]) -> list[Any]:
    """Return attributes for raw input: no echo, no signals, no line editing."""
    iflag, oflag, cflag, lflag, ispeed, ospeed, cc = before
    iflag &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
    lflag &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    cc = list(cc)
    cc[termios.VMIN] = 1
    cc[termios.VTIME] = 0
    return [iflag, oflag, cflag, lflag, ispeed, ospeed, cc]
