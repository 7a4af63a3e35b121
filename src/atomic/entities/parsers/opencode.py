"""OpenCode's format: Markdown, and the commands and agents inside `opencode.json[c]`.

In JSON `{file:…}` stands for the text of a file: the caller gives the function that may reach the disk. `{env:…}` is
left as it is: what is in the environment is nobody else's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from atomic.base import jsonc
from atomic.entities.errors import FormatError
from atomic.entities.model import Body, Entity, EntityKind, Source
from atomic.entities.parsers.claude import tools_of
from atomic.entities.parsers.document import Document, build, file_name, is_name, make, read_head
from atomic.entities.values import Fields, Value, is_true, text

_DEPTH = 20
_KEYS = (  # of two names for one thing the first wins
    ("command", EntityKind.COMMAND),
    ("commands", EntityKind.COMMAND),
    ("agent", EntityKind.AGENT),
    ("agents", EntityKind.AGENT),
    ("mode", EntityKind.AGENT),
)
_FILE = re.compile(r"\{file:([^{}\n]*)\}")

Resolve = Callable[[str], Body]
"""Finds the file of a `{file:…}`. Raises FormatError where it must not or cannot be read."""


class Joined(msgspec.Struct, frozen=True):
    """A prompt of texts and files."""

    parts: tuple[str | Body, ...]

    def read(self) -> str:
        """All of it; what stands in a file is not looked at again."""
        return "".join(part if isinstance(part, str) else part.read() for part in self.parts).strip()

    def base_directory(self) -> str | None:
        """None: it is no skill."""
        return None


def parse(document: Document) -> Entity | None:
    """The entity in a Markdown file; None if it is disabled. Raises FormatError."""
    head = read_head(document)
    if _disabled(head.fields):
        return None
    return build(document, head, file_name(document, ".md"), tools_of(document.kind, head.fields))


def parse_config(source: Source, config: str, resolve: Resolve) -> Iterator[Entity | FormatError]:
    """The commands and agents in a configuration file, and what is wrong with others. Raises FormatError."""
    seen: set[tuple[EntityKind, str]] = set()
    settings = _settings(config)
    for key, kind in _KEYS:
        definitions = settings.get(key)
        if definitions is not None and not isinstance(definitions, dict):
            yield FormatError(f'"{key}" is no object', _line(config, key))
            continue
        for name, definition in cast("dict[str, Any]", definitions or {}).items():
            if (kind, name) not in seen:
                seen.add((kind, name))
                yield from _defined(kind, name, definition, source, config, resolve)


def _settings(config: str) -> dict[str, Any]:
    try:
        return jsonc.parse(config)
    except json.JSONDecodeError as error:
        raise FormatError(error.msg, error.lineno) from error
    except ValueError as error:
        raise FormatError(str(error)) from error


def _defined(
    kind: EntityKind, name: str, definition: Any, source: Source, config: str, resolve: Resolve
) -> Iterator[Entity | FormatError]:
    try:
        if not isinstance(definition, dict):
            raise FormatError(f'"{name}" is no object')
        fields = cast("Fields", _plain(cast("dict[str, Any]", definition), _DEPTH))
        if not _disabled(fields):
            yield _entity(kind, name, fields, source, resolve)
    except FormatError as error:
        yield FormatError(error.reason, _line(config, name))


def _entity(kind: EntityKind, name: str, fields: Fields, source: Source, resolve: Resolve) -> Entity:
    usable = name.replace("/", ":") if kind is EntityKind.COMMAND else name
    if not is_name(usable):
        raise FormatError(f'"{name[:64]}" cannot be a name')
    template = text(fields.get("template" if kind is EntityKind.COMMAND else "prompt"))
    return make(kind, usable, fields, _prompt(template, resolve), tools_of(kind, fields), source)


def _prompt(template: str, resolve: Resolve) -> str | Body:
    parts: list[str | Body] = list(_FILE.split(template))
    if len(parts) == 1:
        return template.strip()
    parts[1::2] = [resolve(cast("str", reference).strip()) for reference in parts[1::2]]
    return Joined(tuple(parts))


def _disabled(fields: Mapping[str, Value]) -> bool:
    return is_true(fields.get("disable")) or is_true(fields.get("disabled"))


def _plain(value: Any, depth: int) -> Value:
    """JSON as front matter has it: all scalars are text."""
    if depth == 0:
        raise FormatError(f"it is nested deeper than {_DEPTH}")
    if isinstance(value, dict):
        return {key: _plain(item, depth - 1) for key, item in cast("dict[str, Any]", value).items() if item is not None}
    if isinstance(value, list):
        return [_plain(item, depth - 1) for item in cast("list[Any]", value)]
    return value if isinstance(value, str) else json.dumps(value)


def _line(config: str, key: str) -> int:
    """About where a key stands."""
    return config.count("\n", 0, max(0, config.find(json.dumps(key, ensure_ascii=False)))) + 1
