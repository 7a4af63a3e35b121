"""Replace the placeholders of a prompt by the user's arguments. Pure.

Replaced in one pass, so that a `$1` in the user's text is not replaced again.
"""

from __future__ import annotations

import re

NO_ARGUMENTS = "[no arguments provided]"

_PLACEHOLDER = re.compile(r"\$(?:ARGUMENTS\[([0-9]+)\]|(ARGUMENTS)(?![A-Za-z0-9_])|([0-9])(?![0-9]))")
# Python refuses to convert numbers with thousands of digits.
_MAX_DIGITS = 6


def fill_in(prompt: str, arguments: str, *, first: int = 1) -> str:
    """Return the prompt with these arguments.

    `first` is the number of the first argument: 0 in Claude's files. Arguments that no
    placeholder uses are appended.
    """
    given = bool(arguments.strip())
    words = split_arguments(arguments) if given else []
    used = False

    def value(found: re.Match[str]) -> str:
        nonlocal used
        index, everything, digit = found.groups()
        if digit is not None and int(digit) < first:
            # `$0` where numbers begin at 1.
            return found[0]
        used = True
        if everything is not None:
            return arguments if given else NO_ARGUMENTS
        return _word(words, index, 0) if digit is None else _word(words, digit, first)

    text = _PLACEHOLDER.sub(value, prompt)
    return text if used or not given else f"{text.rstrip()}\n\nARGUMENTS: {arguments}".lstrip("\n")


def split_arguments(arguments: str) -> list[str]:
    """Split like a shell; at blanks if the quotes do not match."""
    import shlex

    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _word(words: list[str], number: str, first: int) -> str:
    index = int(number) - first if len(number) <= _MAX_DIGITS else len(words)
    return words[index] if index < len(words) else ""
