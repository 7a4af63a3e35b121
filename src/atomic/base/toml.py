"""Read TOML that a stranger may have written. `tomllib` takes time by the square of a dotted key's length."""

from __future__ import annotations

import re
import tomllib
from typing import Any

MAX_PARTS = 20  # of a key such as a.b.c

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|(?P<part>"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|[A-Za-z0-9_-]++)'
    r"|(?P<dot>[ \t]*+\.[ \t]*+)"
    r"|#[^\n]*+"
    r"|.",
    re.DOTALL,
)


class DeepKeyError(ValueError):
    """A key has more than MAX_PARTS parts, in this line."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"a key has more than {MAX_PARTS} parts")


def load_toml(text: str) -> dict[str, Any]:
    """Return what a text says. Raises tomllib.TOMLDecodeError, DeepKeyError and RecursionError."""
    if text.count(".") > MAX_PARTS:
        _check_keys(text)
    return tomllib.loads(text)


def _check_keys(text: str) -> None:
    parts = 0
    after_dot = False
    for token in _TOKEN.finditer(text):
        if token["part"] is not None:
            parts = parts + 1 if after_dot else 1
            if parts > MAX_PARTS:
                raise DeepKeyError(text.count("\n", 0, token.start()) + 1)
            after_dot = False
        elif token["dot"] is not None:
            after_dot = parts > 0
        else:
            parts = 0
            after_dot = False
