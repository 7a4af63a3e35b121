"""Words of agents, files and programs, in Markdown that they cannot break: not its shape, not the reader's terminal."""

from __future__ import annotations

import re
import shlex

from atomic.workflows.ralph.gates import readable

LONGEST = 200  # characters of a line
# A forge tells people, closes issues or makes links where it reads these; in code it does not.
_ACTED_ON = re.compile(r"@|#\d|://|\bwww\.|\bGH-\d", re.IGNORECASE)
_MARKS = re.compile(r"[\\`*\[\]<>~&]|(?<![^\W_])_|_(?![^\W_])")
_AT_START = re.compile(r"^(?:[#+=>-]|\d+[.)])")


def plain(text: str, most: int = LONGEST) -> str:
    """One line of text, without anything that a terminal would obey; a long one is cut."""
    words = " ".join(readable(text.encode("utf-8", "replace")).split())
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


def line(text: str, most: int = LONGEST) -> str:
    """One line of Markdown that shows the text as it is."""
    words = plain(text, most)
    if _ACTED_ON.search(words):
        return code(words, most)
    shown = _MARKS.sub(lambda found: f"\\{found[0]}", words)
    return _AT_START.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", shown)


def code(text: str, most: int = LONGEST) -> str:
    """A command, a path or a name, between ticks that it cannot close."""
    words = plain(text, most) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", words)), default=0))
    space = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{ticks}{space}{words}{space}{ticks}"


def cell(text: str) -> str:
    """A line within a table."""
    return line(text).replace("|", "\\|")


def word(text: str) -> str:
    """A word for a shell; one with signs that do not print is written in the way of bash and zsh."""
    if text.isprintable():
        return shlex.quote(text)
    signs = (sign if sign.isprintable() and sign not in "\\'" else _escaped(sign) for sign in text)
    return f"$'{''.join(signs)}'"


def _escaped(sign: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape"))
