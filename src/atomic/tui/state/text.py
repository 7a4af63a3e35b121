"""Shorten long output, and format tokens and costs in a few characters."""

from __future__ import annotations

from dataclasses import dataclass

from atomic.base.usage import Usage

HEAD = 8_000
TAIL = 8_000


@dataclass(slots=True)
class Clip:
    """An output that grows at its end: the beginning and the end are kept."""

    _head: str = ""
    _tail: str = ""
    _left_out: int = 0  # lines
    _is_cut: bool = False

    def add(self, text: str) -> None:
        """Append text."""
        room = HEAD - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if len(self._tail) > 2 * TAIL:  # rarely, so that not every delta copies it
            self._cut()

    def text(self) -> str:
        """Return the text to show."""
        if len(self._tail) > TAIL:
            self._cut()
        if not self._is_cut:
            return self._head + self._tail
        lines = f"{self._left_out:,} lines" if self._left_out else "a part"
        return f"{self._head.rstrip()}\n… {lines} left out …\n{self._tail}"

    def _cut(self) -> None:
        at = len(self._tail) - TAIL
        border = self._tail.find("\n", at, at + 400) + 1 or at  # whole lines, unless they are very long
        self._left_out += self._tail.count("\n", 0, border)
        self._tail = self._tail[border:]
        self._is_cut = True


def clip(text: str) -> str:
    """Return the beginning and the end of a text."""
    if len(text) <= HEAD + TAIL:
        return text
    kept = Clip()
    kept.add(text)
    return kept.text()


def amount(tokens: int) -> str:
    """Return a number of tokens as 950, 68k or 1.2M."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.0f}k" if tokens < 999_500 else f"{tokens / 1_000_000:.1f}M"


def spent(usage: Usage) -> str:
    """Return the cost if it is known, otherwise the tokens, otherwise an empty string."""
    if usage.cost is not None:
        return f"${usage.cost:.2f}"
    if usage.input or usage.output:
        return f"↑{amount(usage.input)} ↓{amount(usage.output)}"
    return ""
