"""The prompt of a turn: the words of the command line, and what is piped in behind them."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

import msgspec

from atomic.base.arguments import UsageError
from atomic.cli.streams import STDIN, tell

PATIENCE = 3.0  # seconds until we say what we are waiting for


class Prompt(msgspec.Struct, frozen=True):
    """What was typed, and what was piped in. Only a person gives Atomic commands: no text that comes from elsewhere."""

    said: str
    piped: str = ""

    @property
    def text(self) -> str:
        """All of it, for an agent."""
        return "\n\n".join(part for part in (self.said, self.piped) if part)


def read_prompt(words: Sequence[str]) -> Prompt:
    """The words joined by one space; standard input, if it is no terminal, follows. A last `-` reads it in any case.

    Raises UsageError if there is nothing.
    """
    wants_input = bool(words) and words[-1] == "-"
    said = _readable(" ".join(words[:-1] if wants_input else words))
    piped = _read_input() if wants_input or not os.isatty(STDIN) else ""
    prompt = Prompt(*(part if part.strip() else "" for part in (said, piped)))
    if not prompt.text:
        raise UsageError('No prompt: give it as in atomic -p "PROMPT", or pipe it in')
    return prompt


def read_words(words: Sequence[str]) -> str:
    """The prompt of a run: the words joined by one space; a last `-` reads standard input."""
    if not words or words[-1] != "-":
        return Prompt(_readable(" ".join(words))).text
    return Prompt(_readable(" ".join(words[:-1])), _read_input()).text


def _readable(text: str) -> str:
    # What is not UTF-8 came in as surrogates, which nothing behind here could write.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _read_input() -> str:
    if not os.isatty(STDIN) and not select.select([STDIN], [], [], PATIENCE)[0]:
        tell("waiting for the end of standard input (to leave it out: </dev/null)")
    pieces: list[bytes] = []
    while piece := os.read(STDIN, 1024 * 1024):
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace").rstrip("\n")
