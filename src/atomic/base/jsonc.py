"""JSON with comments and trailing commas, as the agents' configuration files are."""

from __future__ import annotations

import json
import re
from typing import Any, cast

# A stranger may have written the text: `*+` and the ends at `\Z` keep a search from going over a part many times.
_TOKEN = re.compile(
    r"""
      (?P<text>"(?:\\.|[^"\\])*+(?:"|\\?\Z))
    | (?P<comment>//[^\r\n]*|/\*.*?(?:\*/|\Z))
    | (?P<comma>,)(?=(?:\s|//[^\r\n]*|/\*.*?\*/)*+[}\]])
    """,
    re.VERBOSE | re.DOTALL,
)


def parse(text: str) -> dict[str, Any]:
    """The object in a text. Raises ValueError with what is wrong where there is none."""
    plain = _TOKEN.sub(_plain, text.removeprefix("\ufeff"))
    try:
        value = json.loads(plain, object_pairs_hook=_object)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return cast("dict[str, Any]", value)


def _plain(found: re.Match[str]) -> str:
    """Text as it is; of the rest only the line breaks, so that an error names the line of the file."""
    return found[0] if found["text"] is not None else " " + "\n" * found[0].count("\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands there twice: who reads it decides which one counts."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f'the key "{key}" stands there twice')
        result[key] = value
    return result
