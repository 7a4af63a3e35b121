"""Read a configuration file, and find the line of a key, which tomllib does not report."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, cast

from atomic.base.formats import DeepKeyError, parse_toml
from atomic.base.untrusted_files import RefusedFileError, read_bounded
from atomic.config.settings import ConfigError

MAX_BYTES = 1024 * 1024

Key = tuple[str, ...]

_QUOTED = r'"(?:[^"\\]|\\.)*"|\'[^\']*\''
_HEADER = re.compile(rf"\s*\[\[?((?:{_QUOTED}|[^\]\"'])+)\]")
_ASSIGNMENT = re.compile(rf"\s*((?:{_QUOTED}|[^=\"'#])+)=")
_TOKEN = re.compile(rf'"""|\'\'\'|{_QUOTED}|#.*|[\[\]{{}}]')


class ConfigFile:
    """A configuration file that is TOML."""

    def __init__(self, path: Path, text: str, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._text = text
        self._lines: dict[Key, int] | None = None

    def line_of(self, key: Key) -> int:
        """Return the line of a key.

        For a key of an inline table, the line of the table.
        """
        if self._lines is None:
            self._lines = key_lines(self._text)
        while key and key not in self._lines:
            key = key[:-1]
        return self._lines.get(key, 1)


def read_file(path: Path) -> ConfigFile:
    """Read a configuration file. Raise ConfigError."""
    try:
        content = read_bounded(path, MAX_BYTES)
    except RefusedFileError as error:
        raise ConfigError(path, 1, error.strerror or str(error)) from error
    except OSError as error:
        raise ConfigError(path, 1, f"this file cannot be read: {error.strerror or error}") from error
    try:
        text = content.decode()
        return ConfigFile(path, text, parse_toml(text))
    except UnicodeDecodeError as error:
        raise ConfigError(path, content.count(b"\n", 0, error.start) + 1, "this is not UTF-8 text") from error
    except DeepKeyError as error:
        raise ConfigError(path, error.line, str(error)) from error
    except RecursionError as error:
        raise ConfigError(path, 1, "values are nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        line, reason = _split_message(str(error), last=content.count(b"\n") + 1)
        raise ConfigError(path, line, f"this is not TOML: {reason}") from error


def _split_message(message: str, *, last: int) -> tuple[int, str]:
    """Return line and reason of an error of tomllib, which ends with "(at line 3,
    column 7)".
    """
    reason, _, place = message.rpartition(" (at ")
    number = place.removeprefix("line ").partition(",")[0]
    return (int(number) if number.isdigit() else last), reason


def key_lines(text: str) -> dict[Key, int]:
    """Return the line of each key and table of a TOML text."""
    lines: dict[Key, int] = {}
    table: Key = ()
    # The open quote and brackets of a value that spans lines.
    quote = ""
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        start = 0
        if not quote and not depth:
            if found := _HEADER.match(line):
                table = key = _parts(found[1])
                start = len(line)
            elif found := _ASSIGNMENT.match(line):
                key = (*table, *_parts(found[1]))
                start = found.end()
            else:
                key = ()
            for length in range(1, len(key) + 1):
                lines.setdefault(key[:length], number)
        quote, depth = _open_at_end(line, start, quote, depth)
    return lines


def _parts(key: str) -> Key:
    try:
        inner: Any = tomllib.loads(f"{key.strip()} = 0")
    except tomllib.TOMLDecodeError:  # a line inside a text with quotes that this scan does not know
        return ()
    parts: list[str] = []
    while isinstance(inner, dict):
        ((name, inner),) = cast("dict[str, Any]", inner).items()
        parts.append(name)
    return tuple(parts)


def _open_at_end(line: str, start: int, quote: str, depth: int) -> tuple[str, int]:
    """Return the quote and the number of brackets that are open at the end of a line."""
    while True:
        if quote:
            end = line.find(quote, start)
            if end < 0:
                return quote, depth
            start = end + len(quote)
            quote = ""
        found = _TOKEN.search(line, start)
        if found is None:
            return "", depth
        start = found.end()
        match found[0]:
            case '"""' | "'''":
                quote = found[0]
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case _:
                pass
