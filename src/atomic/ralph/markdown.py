"""Build Markdown from words of agents, files and programs.

Such words cannot change the structure of the text or control the reader's terminal.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from atomic.ralph.checks import readable

MAX_LENGTH = 200  # characters of a line
# A forge notifies people, closes issues or makes links where it reads these, except in
# code.
_ACTIVE = re.compile(r"@|#\d|://|\bwww\.|\bGH-\d", re.IGNORECASE)
_MARKUP = re.compile(r"[\\`*\[\]<>~]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])")
_MARKUP_AT_START = re.compile(r"^(?:[#+=>-]|\d+[.)])")


def plain(text: str, most: int = MAX_LENGTH) -> str:
    """Return the text as one line without control characters, cut to a length."""
    words = " ".join(readable(text.encode("utf-8", "replace")).split())
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


def line(text: str, most: int = MAX_LENGTH) -> str:
    """Return one line of Markdown that shows the text literally."""
    words = plain(text, most)
    if _ACTIVE.search(words):
        return code(words, most)
    escaped = _MARKUP.sub(lambda found: f"\\{found[0]}", words)
    return _MARKUP_AT_START.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", escaped)


def code(text: str, most: int = MAX_LENGTH) -> str:
    """Return a command, path or name between backticks that it cannot close."""
    words = plain(text, most) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", words)), default=0))
    space = " " if words.startswith("`") or words.endswith("`") else ""
    return f"{ticks}{space}{words}{space}{ticks}"


def cell(text: str) -> str:
    """Return a line for a cell of a table."""
    return line(text).replace("|", "\\|")


def codes(texts: Iterable[str], between: str = ", ") -> str:
    """Return names as code, separated by commas."""
    return between.join(code(text) for text in texts)


def word(text: str) -> str:
    """Return a word for a shell.

    Bash and zsh read the escapes of unprintable characters.
    """
    if text.isprintable():
        return shlex.quote(text)
    quoted = ""
    for letter in text:
        if letter.isprintable() and letter not in "\\'":
            quoted += letter
        else:
            quoted += "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogateescape"))
    return f"$'{quoted}'"


def paragraphs(*parts: str) -> str:
    """Join the parts that are not empty with blank lines."""
    return "\n\n".join(part.strip("\n") for part in parts if part)


def bullets(lines: Iterable[str]) -> str:
    """Return a list; empty lines are left out."""
    return "\n".join(f"- {line}" for line in lines if line)


def shell(*lines: str) -> str:
    """Return a code block of commands; empty lines are left out."""
    return "\n".join(["```sh", *(line for line in lines if line), "```"])


def quote(text: str) -> str:
    """Return the text as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
