"""Parse TOML, and JSON with comments, that a stranger may have written.

A hostile text must not take long. `tomllib` takes quadratic time for dotted keys, so their
length is limited. The patterns here use possessive quantifiers and end at `\\Z`, so that no
part of a text is searched many times.
"""

from __future__ import annotations

import re
from typing import Any, cast

MAX_PARTS = 20  # of a key such as a.b.c

_TOML_TOKEN = (
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)'
    r"|'''.*?(?:'''|\Z)"
    r'|(?P<part>"(?:[^"\\\n]|\\.)*+"|\'[^\'\n]*+\'|[A-Za-z0-9_-]++)'
    r"|(?P<dot>[ \t]*+\.[ \t]*+)"
    r"|#[^\n]*+"
    r"|."
)
_JSONC_TOKEN = r"""
      (?P<text>"(?:\\.|[^"\\])*+(?:"|\\?\Z))
    | (?P<comment>//[^\r\n]*|/\*.*?(?:\*/|\Z))
    | (?P<comma>,)(?=(?:\s|//[^\r\n]*|/\*.*?\*/)*+[}\]])
    """


class DeepKeyError(ValueError):
    """A key in this line has more than MAX_PARTS parts."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"a key has more than {MAX_PARTS} parts")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raise TOMLDecodeError, DeepKeyError or RecursionError.
    """
    import tomllib  # most projects have no such file

    if text.count(".") > MAX_PARTS:
        _check_keys(text)
    return tomllib.loads(text)


def _check_keys(text: str) -> None:
    parts = 0
    after_dot = False
    for token in re.finditer(_TOML_TOKEN, text, re.DOTALL):
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


def parse_jsonc(text: str) -> dict[str, Any]:
    """Return the object of a JSON text with comments and trailing commas.

    Raise ValueError.
    """
    import json

    plain = re.sub(_JSONC_TOKEN, _remove_comment, text.removeprefix("\ufeff"), flags=re.VERBOSE | re.DOTALL)
    try:
        value = json.loads(plain, object_pairs_hook=_unique_keys)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return cast("dict[str, Any]", value)


def _remove_comment(found: re.Match[str]) -> str:
    """Keep texts. Keep the line breaks of comments, so that errors name the right line."""
    if found["text"] is not None:
        return found[0]
    return " " + "\n" * found[0].count("\n")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that occurs twice: each reader would choose another one."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f'the key "{key}" occurs twice')
        result[key] = value
    return result
