"""Show a large paste in the prompt as a label such as `[Pasted 214 lines]`.

It is sent byte for byte.
"""

from __future__ import annotations

import re

LINES = 10
CHARACTERS = 1_000

# Characters that act on the terminal or are invisible.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def as_typed(text: str) -> str:
    """Restore line ends of a paste: terminals send CR for LF, unless the text has an
    LF.
    """
    return text if "\n" in text else text.replace("\r", "\n")


def is_big(text: str) -> bool:
    """Return whether a text is better shown as a label."""
    return len(text) > CHARACTERS or text.count("\n") >= LINES or _UNSEEN.search(text) is not None


class Pastes:
    """The pastes of a prompt by their labels."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, text: str) -> str:
        """Store a paste and return its label."""
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        number = 2
        word = f"[Pasted {size}]"
        while self._texts.get(word, text) != text:
            word = f"[Pasted {size} #{number}]"
            number += 1
        self._texts[word] = text
        return word

    def shorten(self, text: str) -> str:
        """Replace large parts of a text by labels: known pastes, or the whole text."""
        for word, paste in self._texts.items():
            text = text.replace(paste, word)
        return self.add(text) if is_big(text) else text

    def fill(self, text: str) -> str:
        """Return the text with labels replaced by their pastes."""
        if not self._texts or "[Pasted " not in text:
            return text
        words = "|".join(re.escape(word) for word in self._texts)
        return re.sub(words, lambda match: self._texts[match[0]], text)

    def forget(self) -> None:
        """Forget all pastes."""
        self._texts.clear()

    def span(self, line: str, column: int) -> tuple[int, int] | None:
        """Return the span of the label that a Backspace at this column would delete, or
        None.
        """
        for word in self._texts:
            at = line.rfind(word, 0, column + len(word) - 1)
            if 0 <= at < column <= at + len(word):
                return at, at + len(word)
        return None
