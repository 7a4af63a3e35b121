"""The prompt of a turn: the words of the command line, and what is piped in behind them."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

from atomic.cli.errors import UsageError
from atomic.cli.streams import STDIN, tell

PATIENCE = 3.0  # seconds until we say what we are waiting for


def read_prompt(words: Sequence[str]) -> str:
    """The words joined by one space; standard input, if it is no terminal, follows. A last `-` reads it in any case.

    Raises UsageError if there is nothing.
    """
    wants_input = bool(words) and words[-1] == "-"
    said = " ".join(words[:-1] if wants_input else words)
    # What is not UTF-8 came in as surrogates, which nothing behind here could write.
    said = said.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    piped = _read_input() if wants_input or not os.isatty(STDIN) else ""
    parts = [part for part in (said, piped) if part.strip()]
    if not parts:
        raise UsageError('No prompt: give it as in atomic -p "PROMPT", or pipe it in')
    return "\n\n".join(parts)


def _read_input() -> str:
    if not os.isatty(STDIN) and not select.select([STDIN], [], [], PATIENCE)[0]:
        tell("waiting for the end of standard input (to leave it out: </dev/null)")
    pieces: list[bytes] = []
    while piece := os.read(STDIN, 1024 * 1024):
        pieces.append(piece)
    return b"".join(pieces).decode("utf-8", "replace").rstrip("\n")
