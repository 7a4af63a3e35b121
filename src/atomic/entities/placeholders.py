"""Fill the user's arguments into a prompt.

One pass: what the user typed is put in and never looked at again, so a `$1` in it stays as it is.
"""

from __future__ import annotations

import re

NO_ARGUMENTS = "[no arguments provided]"

_PLACEHOLDER = re.compile(r"\$(?:ARGUMENTS\[([0-9]+)\]|(ARGUMENTS)(?![A-Za-z0-9_])|([0-9])(?![0-9]))")
_DIGITS = 6  # nobody types more arguments than that; Python refuses to count with thousands of digits


def fill_in(prompt: str, arguments: str, *, first: int = 1) -> str:
    """The prompt for these arguments; `first` is the number of the first one, 0 in Claude's files."""
    given = bool(arguments.strip())
    words = split_arguments(arguments) if given else []
    used = False

    def value(found: re.Match[str]) -> str:
        nonlocal used
        index, everything, digit = found.groups()
        if digit is not None and int(digit) < first:
            return found[0]  # `$0` where counting starts at 1
        used = True
        if everything is not None:
            return arguments if given else NO_ARGUMENTS
        return _word(words, index, 0) if digit is None else _word(words, digit, first)

    text = _PLACEHOLDER.sub(value, prompt)
    return text if used or not given else f"{text.rstrip()}\n\nARGUMENTS: {arguments}".lstrip("\n")


def split_arguments(arguments: str) -> list[str]:
    """The words as a shell would split them; at blanks where the quotes do not match."""
    import shlex  # only who has arguments needs it

    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _word(words: list[str], number: str, first: int) -> str:
    index = int(number) - first if len(number) <= _DIGITS else len(words)
    return words[index] if index < len(words) else ""
