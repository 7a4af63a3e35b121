"""The terminal's answer to "which colour is behind the text?", taken out of what is typed."""

from __future__ import annotations

import re
from collections.abc import Callable

_ANSWER = re.compile(rb"\x1b\]11;([^\x07\x1b]{0,64})(?:\x07|\x1b\\)")
_BEGIN = b"\x1b]11;"
_LONGEST = 80


class BackgroundFilter:
    """Passes on what is typed without the one answer; it may come in pieces, late, or never."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear, self._held, self._is_done = hear, b"", False

    @property
    def is_open(self) -> bool:
        """Whether something was held back that `strip(b"")` is to let go soon."""
        return 0 < len(self._held) < len(_BEGIN)

    def strip(self, data: bytes) -> bytes:
        """What a person typed of this; nothing new: what was held back was no answer after all."""
        if self._is_done:
            return data
        data, held = self._held + data, b"" if data else self._held
        self._held = b""
        if held:
            return data
        if match := _ANSWER.search(data):
            self._is_done = True
            self._hear(match[1].decode("ascii", "replace"))
            return data[: match.start()] + data[match.end() :]
        begin = _begin_of_answer(data)
        data, self._held = data[:begin], data[begin:]
        return data


def _begin_of_answer(data: bytes) -> int:
    """Where an answer begins that has not ended; the end of the data if there is none."""
    begin = data.rfind(b"\x1b]")
    if begin < 0 or len(data) - begin > _LONGEST:
        return len(data)
    return begin if data[begin : begin + len(_BEGIN)] == _BEGIN[: len(data) - begin] else len(data)
