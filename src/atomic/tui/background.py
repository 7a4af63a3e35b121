"""Remove the terminal's reply about its background colour from the typed input."""

from __future__ import annotations

import re
from collections.abc import Callable

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
        begin = _begin_of_answer(data)
        self._held = data[begin:]
        return data[:begin]


def _begin_of_answer(data: bytes) -> int:
    """Return where an unfinished reply begins, or the length of the data."""
    begin = data.rfind(b"\x1b]")
    if begin < 0 or len(data) - begin > _LONGEST:
        return len(data)
    return begin if data[begin : begin + len(_BEGIN)] == _BEGIN[: len(data) - begin] else len(data)
