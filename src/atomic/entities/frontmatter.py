"""Read the front matter of a Markdown file: the block of `key: value` lines at its
start.

Scalars stay text: the meaning of `on` or `1.0` depends on the field. An argument hint
is always its source text, because `[file]` is not meant as a list. One real file in
twelve is not valid YAML, often because of a colon in a description. Then
`_read_literally` takes each `key: value` at the margin as a field, with the indented
lines below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, Union

from atomic.entities.model import FormatError

Value: TypeAlias = Union[str, "Sequence[Value]", "Mapping[str, Value]"]
Fields: TypeAlias = dict[str, Value]

# Bytes of front matter.
LIMIT = 64 * 1024
# The line of the file in which the block begins.
FIRST_LINE = 2

_MAX_DEPTH = 20
_OPENING = re.compile(r"\ufeff?---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)
_KEY_LINE = re.compile(r"^[^\s#][^:\n]*:(?:[ \t]|$)", re.MULTILINE)
_HINT_LINE = re.compile(
    r"^(argument[-_]?hint)[ \t]*:[ \t]*(\S.*)$(?!\n[ \t]+\S|\n-[ \t])", re.MULTILINE | re.IGNORECASE
)
_FIELD = re.compile(r"([^\s:#'\"][^:]*?|\"[^\"]*\"|'[^']*')[ \t]*:(?:[ \t]+(.*))?")
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*")
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


class Split(NamedTuple):
    """The two parts of a text. `block` is None without front matter.

    `unclosed`: the text begins like front matter and has no closing line.
    """

    block: str | None
    body: str
    unclosed: bool = False


def split(text: str) -> Split:
    """Split front matter and body; convert line ends to `\\n` and drop a BOM."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    opening = _OPENING.match(text)
    if opening is None:
        return Split(None, text.removeprefix("\ufeff"))
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        return Split(None, text.removeprefix("\ufeff"), unclosed=True)
    block = text[opening.end() : closing.start()]
    if block.strip() and not _KEY_LINE.search(block):
        # A paragraph between two rulers.
        return Split(None, text.removeprefix("\ufeff"))
    return Split(block, text[closing.end() :].removeprefix("\n"))


def read(block: str) -> Fields:
    """Return the fields of a block.

    Raises FormatError, with the line, above a limit.
    """
    # Importing YAML takes longer than reading hundreds of files.
    from atomic.entities.yaml_events import NotYamlError, read_yaml

    if len(block.encode()) > LIMIT:
        raise FormatError("the front matter is longer than 64 KB", FIRST_LINE)
    try:
        return read_yaml(_HINT_LINE.sub(_quote_hint, block), FIRST_LINE)
    except NotYamlError:
        return _read_literally(block.split("\n"), _MAX_DEPTH)


def _quote_hint(line: re.Match[str]) -> str:
    """Quote an argument hint, so that YAML sees no list, alias or error in it."""
    hint = _unquote(line[2].strip()).replace("'", "''")
    return f"{line[1]}: '{hint}'"


def _read_literally(lines: list[str], depth: int) -> Fields:
    """Return the fields at the margin and skip other lines."""
    fields: Fields = {}
    at = 0
    while at < len(lines):
        found = _FIELD.fullmatch(lines[at].rstrip())
        at += 1
        if found is None:
            continue
        end = at
        # Lines that are empty, indented or items belong to the field before them.
        while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t" or lines[end].startswith("- ")):
            end += 1
        fields[_unquote(found[1])] = _literal_value((found[2] or "").strip(), lines[at:end], depth)
        at = end
    return fields


def _literal_value(source: str, below: list[str], depth: int) -> Value:
    inner = [line.strip() for line in below if line.strip() and not line.lstrip().startswith("#")]
    if _BLOCK_SCALAR.fullmatch(source):
        return ("\n" if source[0] == "|" else " ").join(inner)
    if source and inner:
        return " ".join([source, *inner])
    if not inner:
        return _unquote(source)
    if all(line.startswith("- ") for line in inner):
        return [_unquote(line[2:].strip()) for line in inner]
    fields: Fields = {}
    if depth:
        width = min(len(line) - len(line.lstrip()) for line in below if line.strip())
        fields = _read_literally([line[width:] for line in below], depth - 1)
    return fields or " ".join(inner)


def _unquote(text: str) -> str:
    """Remove the quotes around a text that is one quoted string."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def first(fields: Mapping[str, Value], *keys: str) -> Value | None:
    """Return the value of the first key that exists."""
    for key in keys:
        if key in fields:
            return fields[key]
    return None


def text(value: Value | None) -> str:
    """Return a scalar, or the first one of a list; "" for everything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value:
        return text(value[0])
    return ""


def is_true(value: Value | None) -> bool:
    """Return whether the value is one of YAML's words for true."""
    return isinstance(value, str) and value.strip().lower() in _TRUE


def is_false(value: Value | None) -> bool:
    """Return whether the value is one of YAML's words for false."""
    return isinstance(value, str) and value.strip().lower() in _FALSE
