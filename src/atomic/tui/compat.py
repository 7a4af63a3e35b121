"""Patches for gaps in Textual 8's terminal input. They use private parts of Textual.

* Textual drops escape characters in a paste and reads it letter by letter. Here a paste
  is kept unchanged.
* Alt+Enter arrives as ESC CR and loses its Alt. Shift+Enter of xterm and tmux (`CSI 27
  ; 2 ; 13 ~`) is unknown.
* Kitty reports lock keys as keys. They must not type anything.

Versions outside the tested range may have changed the replaced functions, so they are
refused. The range is the one in `pyproject.toml`; docs/decisions/0013-plain-install.md
explains how it was found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import textual
from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.keys import Keys

from atomic.base.errors import AtomicError

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message

OLDEST = (8, 2, 5)
BELOW = (9,)

ASK_FOR_SHIFT = "\x1b[>4;1m"  # xterm's modifyOtherKeys: report Shift with Enter
END_ASKING = "\x1b[>4;0m"

_OTHER_KEY = re.compile(r"\x1b\[27;(\d+);(\d+)~")  # xterm's form of `CSI key ; modifiers u`
_LOCKS = frozenset(("caps_lock", "scroll_lock", "num_lock"))


class TextualVersionError(AtomicError):
    """The installed Textual is outside the range that this module was tested with."""

    def __init__(self, found: str) -> None:
        from atomic.base.installation import Installation

        self.found = found
        command = Installation().add(f"textual>={_dotted(OLDEST)},<{_dotted(BELOW)}")
        super().__init__(f"Atomic's screen does not work with textual {found}. Install another: {command}")


@cache
def install() -> None:
    """Install the patches, once per process. Raises TextualVersionError."""
    found = _textual_version()
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdecimal())
    if not OLDEST <= numbers < BELOW:
        raise TextualVersionError(found)
    XTermParser.feed = _feed
    XTermParser.tick = _tick
    XTermParser._sequence_to_key_events = _keys  # pyright: ignore[reportPrivateUsage]


def _textual_version() -> str:
    """Return the installed version.

    Its name is in the folder next to the package. Importing `importlib.metadata` would
    delay the first frame.
    """
    packages = Path(textual.__file__).parent.parent
    for folder in packages.glob("textual-*.dist-info"):
        return folder.name.removeprefix("textual-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("textual")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in numbers)


def can_ask_for_shift() -> bool:
    """Return whether the terminal reports Shift+Enter only after xterm's request for
    it.
    """
    return bool(os.environ.get("TMUX") or os.environ.get("XTERM_VERSION"))


def write(app: App[Any], text: str) -> None:
    """Write an escape sequence to the terminal, such as a bell, a title or the
    clipboard.
    """
    driver = app._driver  # pyright: ignore[reportPrivateUsage]
    if driver is not None:
        driver.write(text)
        driver.flush()


def fail(app: App[Any], error: BaseException) -> None:
    """End the app with an error from outside its message handlers, as Textual does
    inside.
    """
    app._handle_exception(error)  # pyright: ignore[reportPrivateUsage, reportArgumentType]  # any kind will do


# -- pastes

_feed_as_it_was = XTermParser.feed
_tick_as_it_was = XTermParser.tick


class _Pasting:
    """State of a paste in one parser.

    It is stored on the parser, which does not know about it.
    """

    def __init__(self) -> None:
        self.parts: list[str] | None = None  # None: not inside a paste
        self.tail = ""  # the last characters, which may begin a marker


def _state(parser: XTermParser) -> _Pasting:
    state = parser.__dict__.get("atomic_pasting")
    if state is None:
        state = parser.__dict__["atomic_pasting"] = _Pasting()
    return state


def _feed(self: XTermParser, data: str) -> Iterable[Message]:
    """Feed typed text to the original parser.

    A paste is collected here and sent as one event.
    """
    state = _state(self)
    if not data:
        yield from _feed_as_it_was(self, data)
        return
    while data:
        if state.parts is None:
            typed, data = _until_paste(state, data)
            yield from _feed_as_it_was(self, typed)
        else:
            ended, data = _until_end(state, data)
            if ended is not None:
                for message in _feed_as_it_was(self, BRACKETED_PASTE_END):
                    yield events.Paste(ended) if isinstance(message, events.Paste) else message


def _until_paste(state: _Pasting, data: str) -> tuple[str, str]:
    """Return the input up to and including the marker that begins a paste, and the
    rest.
    """
    seen = state.tail + data
    at = seen.find(BRACKETED_PASTE_START)
    if at < 0:
        state.tail = seen[-(len(BRACKETED_PASTE_START) - 1) :]
        return data, ""
    end = at + len(BRACKETED_PASTE_START) - len(state.tail)
    state.tail = ""
    state.parts = []
    return data[:end], data[end:]


def _until_end(state: _Pasting, data: str) -> tuple[str | None, str]:
    """Return the complete paste, if it has ended, and the input after it."""
    assert state.parts is not None
    seen = state.tail + data
    at = seen.find(BRACKETED_PASTE_END)
    if at < 0:
        kept = len(BRACKETED_PASTE_END) - 1
        state.parts.append(seen[:-kept])
        state.tail = seen[-kept:]
        return None, ""
    text = "".join((*state.parts, seen[:at]))
    state.tail = ""
    state.parts = None
    return text, seen[at + len(BRACKETED_PASTE_END) :]


def _tick(self: XTermParser) -> Iterable[Message]:
    """Treat the beginning of an escape sequence as a key if nothing follows in time."""
    waited = self._timeout_time is not None  # pyright: ignore[reportPrivateUsage]
    yield from _tick_as_it_was(self)
    if waited and self._timeout_time is None:  # pyright: ignore[reportPrivateUsage]
        state = _state(self)
        if state.parts is None:
            state.tail = ""


# -- keys

_keys_as_they_were = XTermParser._sequence_to_key_events  # pyright: ignore[reportPrivateUsage]


def _keys(self: XTermParser, sequence: str, alt: bool = False) -> Iterable[events.Key]:
    if sequence in ("\x1b\r", "\x1b\n") or (alt and sequence in ("\r", "\n")):
        yield events.Key("alt+enter", None)
        return
    if (match := _OTHER_KEY.fullmatch(sequence)) is not None:
        sequence = f"\x1b[{match[2]};{match[1]}u"
    for key in _keys_as_they_were(self, sequence, alt):
        is_lock = key.key.rpartition("+")[2] in _LOCKS
        yield events.Key(Keys.Ignore, sequence) if is_lock else key
