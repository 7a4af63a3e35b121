"""Read lines that were meant as YAML and are none: what stands there is what is meant.

Each `key: value` at the margin is a field, whatever the value looks like. Lines below it that are indented belong to
it: items, fields or more text. So a colon in a description does not cost the list of denied tools below it.
"""

from __future__ import annotations

import re

from atomic.entities.values import Fields, Value

_DEPTH = 20
_FIELD = re.compile(r"([^\s:#'\"][^:]*?|\"[^\"]*\"|'[^']*')[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"[|>][-+0-9]*")


def read_literal(block: str) -> Fields:
    """The fields at the margin; lines that are none are left out."""
    return _fields(block.split("\n"), _DEPTH)


def unquoted(text: str) -> str:
    """Without the quotes around it, if it is one quoted text."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def _fields(lines: list[str], depth: int) -> Fields:
    fields: Fields = {}
    at = 0
    while at < len(lines):
        found = _FIELD.fullmatch(lines[at].rstrip())
        at += 1
        if found is None:
            continue
        end = _end(lines, at)
        fields[unquoted(found[1])] = _value((found[2] or "").strip(), lines[at:end], depth)
        at = end
    return fields


def _end(lines: list[str], at: int) -> int:
    """Where the lines end that belong to the one before: they are indented, empty or items."""
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t" or lines[at].startswith("- ")):
        at += 1
    return at


def _value(source: str, below: list[str], depth: int) -> Value:
    inner = [line.strip() for line in below if line.strip() and not line.lstrip().startswith("#")]
    if _BLOCK.fullmatch(source):
        return ("\n" if source[0] == "|" else " ").join(inner)
    if source or not inner:
        return " ".join([unquoted(source) if not inner else source, *inner])
    if all(line.startswith("- ") for line in inner):
        return [unquoted(line[2:].strip()) for line in inner]
    return (_fields(_dedented(below), depth - 1) if depth else None) or " ".join(inner)


def _dedented(lines: list[str]) -> list[str]:
    width = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return [line[width:] for line in lines]
