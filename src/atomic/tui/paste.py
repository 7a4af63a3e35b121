"""Big pastes stand in the prompt as one word, `[Pasted 214 lines]`, and are sent as they came, byte for byte."""

from __future__ import annotations

import re

LINES = 10
CHARACTERS = 1_000

# What must not stand in the prompt: it would act on the terminal, or be seen by nobody.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def as_typed(text: str) -> str:
    """A paste with its own line ends: terminals send CR where there was LF. What has an LF came as it was."""
    return text if "\n" in text else text.replace("\r", "\n")


def is_big(text: str) -> bool:
    """Whether a text is better shown as one word."""
    return len(text) > CHARACTERS or text.count("\n") >= LINES or _UNSEEN.search(text) is not None


class Pastes:
    """The pastes of a prompt, by the word that stands for each."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, text: str) -> str:
        """Keep a paste; the word that stands for it."""
        lines = text.count("\n") + (not text.endswith("\n"))
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        number, word = 2, f"[Pasted {size}]"
        while self._texts.get(word, text) != text:
            word = f"[Pasted {size} #{number}]"
            number += 1
        self._texts[word] = text
        return word

    def shorten(self, text: str) -> str:
        """A text with words for what is too big to be shown: pastes that are in it, or all of it."""
        for word, paste in self._texts.items():
            text = text.replace(paste, word)
        return self.add(text) if is_big(text) else text

    def fill(self, text: str) -> str:
        """The text as it is meant."""
        if not self._texts or "[Pasted " not in text:
            return text
        words = "|".join(re.escape(word) for word in self._texts)
        return re.sub(words, lambda match: self._texts[match[0]], text)

    def forget(self) -> None:
        """The text that they were in is gone."""
        self._texts.clear()

    def span(self, line: str, column: int) -> tuple[int, int] | None:
        """Where the word stands that a Backspace at this column is in or behind; None if there is none."""
        for word in self._texts:
            at = line.rfind(word, 0, column + len(word) - 1)
            if 0 <= at < column <= at + len(word):
                return at, at + len(word)
        return None
