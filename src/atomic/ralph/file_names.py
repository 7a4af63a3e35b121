"""Names of files in texts, in commands for a shell, and in facts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any, cast

import msgspec

MOST_NAMED = 30  # in one text

# A name may have bytes that are not UTF-8. Python keeps them as surrogates, which JSON
# cannot contain. In facts they are characters of a private range.
_PRIVATE = {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
_SURROGATES = {private: surrogate for surrogate, private in _PRIVATE.items()}


def shown(path: str) -> str:
    """Return a printable name of a file, quoted as git does if needed."""
    if path.isprintable():
        return path
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    quoted = ""
    for letter in path:
        octal = "".join(f"\\{byte:03o}" for byte in os.fsencode(letter))
        quoted += letter if letter.isprintable() else escapes.get(letter, octal)
    return f'"{quoted}"'


def shell_word(path: str) -> str:
    """Return the name of a file for a POSIX shell, in printable characters and line
    ends.
    """
    body = path.rstrip("\n")
    if body.isprintable():
        return quote(path)
    plain = "./_"  # without "-": printf would take a first one for an option
    octals = ("".join(f"\\{byte:03o}" for byte in os.fsencode(sign)) for sign in body)
    pairs = zip(body, octals, strict=True)
    text = "".join(sign if sign in plain or (sign.isascii() and sign.isalnum()) else octal for sign, octal in pairs)
    word = f"\"$(printf '{text}')\""
    ends = path[len(body) :]
    return f"{word}{quote(ends)}" if ends else word  # a shell cuts line ends off what printf writes


def named(paths: Sequence[str], *, most: int = MOST_NAMED) -> str:
    """Return names of files for a sentence."""
    return first_of([f"`{shown(path)}`" for path in paths], most=most)


def first_of(texts: Sequence[str], *, most: int, separator: str = ", ") -> str:
    """Return the first texts for a sentence, and how many more there are."""
    first = separator.join(texts[:most])
    return first if len(texts) <= most else f"{first} and {len(texts) - most} more"


def to_fact(value: Any) -> Any:
    """Return data for a fact: names of files become text without surrogates."""
    return _translated(msgspec.to_builtins(value), _PRIVATE)


def from_fact(value: Any) -> Any:
    """Return the data of a fact with the original names of files."""
    return _translated(value, _SURROGATES)


def _translated(value: Any, table: Mapping[int, int]) -> Any:
    match value:
        case str():
            return value if value.isascii() else value.translate(table)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {_translated(key, table): _translated(one, table) for key, one in items}
        case list() | tuple():
            return [_translated(one, table) for one in cast("Sequence[Any]", value)]
        case _:
            return value
