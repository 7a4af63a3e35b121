"""The block of `key: value` lines at the head of a Markdown file.

Most blocks are plain lines and short lists: a few lines of our own read them. Everything else goes to YAML, and where
even that fails (one real file in twelve), the lines are taken as they are. All scalars stay text: what `on` or `1.0`
means is for the field to say. An argument hint is always the source text, because `[file]` is meant as it stands.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from atomic.entities.errors import FormatError
from atomic.entities.literal_yaml import read_literal, unquoted
from atomic.entities.values import Fields, Value, is_hint

LIMIT = 64 * 1024  # bytes of front matter
FIRST_LINE = 2  # of the block, in the file

_OPENING = re.compile(r"\ufeff?---[ \t]*\n")
_CLOSING = re.compile(r"^---[ \t]*$", re.MULTILINE)
_KEY_LINE = re.compile(r"^[^\s#][^:\n]*:(?:[ \t]|$)", re.MULTILINE)
_HINT_LINE = re.compile(
    r"^(argument[-_]?hint)[ \t]*:[ \t]*(\S.*)$(?!\n[ \t]+\S|\n-[ \t])", re.MULTILINE | re.IGNORECASE
)


class Split(NamedTuple):
    """A text in its two parts; `block` None: it has no front matter."""

    block: str | None
    body: str
    unclosed: bool = False  # it begins like front matter and does not end


def split(text: str) -> Split:
    """Part the front matter from the body; line ends become `\\n`, a BOM goes."""
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    opening = _OPENING.match(text)
    if opening is None:
        return Split(None, text.removeprefix("\ufeff"))
    closing = _CLOSING.search(text, opening.end())
    if closing is None:
        return Split(None, text.removeprefix("\ufeff"), unclosed=True)
    block = text[opening.end() : closing.start()]
    if block.strip() and not _KEY_LINE.search(block):  # a ruled paragraph
        return Split(None, text.removeprefix("\ufeff"))
    return Split(block, text[closing.end() :].removeprefix("\n"))


def read(block: str) -> Fields:
    """The fields of a block. Raises FormatError with the line in the file where a limit is broken."""
    if len(block.encode()) > LIMIT:
        raise FormatError("the front matter is longer than 64 KB", FIRST_LINE)
    fields = read_quickly(block)
    return read_thoroughly(block) if fields is None else fields


def read_thoroughly(block: str) -> Fields:
    """By YAML; where that fails for another reason than the limits, as literal lines."""
    from atomic.entities.yaml_events import NotYamlError, read_yaml

    try:
        return read_yaml(_HINT_LINE.sub(_quoted_hint, block), FIRST_LINE)
    except NotYamlError:
        return read_literal(block)


def _quoted_hint(line: re.Match[str]) -> str:
    """Keep YAML from seeing a list, an alias or a mistake in an argument hint."""
    hint = unquoted(line[2].strip()).replace("'", "''")
    return f"{line[1]}: '{hint}'"


# The quick reader. What it takes is a part of YAML, and it gives what YAML gives: a law in the tests says so.
_SAFE = re.compile(r"[\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
_KEY = r"[A-Za-z_][A-Za-z0-9_-]{0,99}"
_LINE = re.compile(rf"({_KEY}):(?: +(.*))?")
_NESTED = re.compile(rf"( *)- +(.*)|( +)({_KEY}): +(.*)")
_PLAIN = re.compile(r"[A-Za-z0-9_/.$(<](?:[^:#]|:(?=[^ ])|(?<=[^ ])#)*")
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")
_FLOW = re.compile(r"\[([^\[\]]*)\]")
_ITEM = re.compile(r" *(?:([A-Za-z0-9_](?:[A-Za-z0-9_./ -]*[A-Za-z0-9_./-])?)|\"([^\"\\]*)\"|'([^']*)') *")


def read_quickly(block: str) -> Fields | None:
    """The fields of a block of plain lines; None if it is anything else."""
    if not _SAFE.fullmatch(block):
        return None
    fields: Fields = {}
    lines = block.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at].rstrip(" ")
        at += 1
        if not line or line[0] == "#":
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        key, source = found.groups()
        end = _end_of_nested(lines, at)
        value = _one_line(key, source) if end == at else _nested(key, source, lines[at:end])
        if value is None:
            return None
        fields[key] = value
        at = end
    return fields


def _end_of_nested(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at][:1] in (" ", "-"):
        at += 1
    return at


def _one_line(key: str, source: str | None) -> Value | None:
    if source is None:
        return ""
    return unquoted(source) if is_hint(key) else _value(source)


def _value(source: str) -> Value | None:
    if _PLAIN.fullmatch(source):
        return source
    if quoted := _QUOTED.fullmatch(source):
        return quoted[1] if quoted[1] is not None else quoted[2]
    flow = _FLOW.fullmatch(source)
    return None if flow is None else _items(flow[1])


def _items(source: str) -> list[Value] | None:
    """The items of a list in brackets; none of them has a comma in it."""
    if not source.strip(" "):
        return []
    items: list[Value] = []
    for part in source.split(","):
        found = _ITEM.fullmatch(part)
        if found is None or found.lastindex is None:
            return None
        items.append(found[found.lastindex])
    return items


def _nested(key: str, source: str | None, lines: list[str]) -> Value | None:
    """A list or a mapping of scalars, all with the same indent."""
    if source is not None or is_hint(key):
        return None
    items: list[Value] = []
    fields: Fields = {}
    indents: set[int] = set()
    for line in lines:
        found = _NESTED.fullmatch(line.rstrip(" "))
        value = None if found is None else _value(found[2] or found[5] or "")
        if found is None or not isinstance(value, str):
            return None
        if found[1] is not None:
            items.append(value)
        else:
            fields[found[4]] = value
        indents.add(len(found[1] if found[1] is not None else found[3]))
    return None if len(indents) > 1 or (items and fields) else items or fields
