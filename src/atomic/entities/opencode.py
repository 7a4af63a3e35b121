"""Parse OpenCode's Markdown files and its `opencode.json[c]` into entities. Pure.

In JSON `{file:…}` stands for the text of a file; the caller passes the function that
reads it. `{env:…}` is not replaced: a prompt must not reveal the environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from atomic.base.formats import parse_jsonc
from atomic.entities.frontmatter import Fields, Value, is_true, text
from atomic.entities.model import Body, Entity, EntityKind, FormatError, Source
from atomic.entities.parsers import Document, is_name, make_entity, make_from_head, read_head

_MAX_DEPTH = 20
# Of two keys for one name the first wins.
_KEYS = (
    ("command", EntityKind.COMMAND),
    ("commands", EntityKind.COMMAND),
    ("agent", EntityKind.AGENT),
    ("agents", EntityKind.AGENT),
    ("mode", EntityKind.AGENT),
)
_FILE = re.compile(r"\{file:([^{}\n]*)\}")

# Finds the file of a `{file:…}`. Raises FormatError if it may not or cannot be read.
Resolve = Callable[[str], Body]


class Joined(msgspec.Struct, frozen=True):
    """A prompt made of texts and files."""

    parts: tuple[str | Body, ...]

    def read(self) -> str:
        """Return the whole prompt.

        The texts of files are not searched for references.
        """
        return "".join(part if isinstance(part, str) else part.read() for part in self.parts).strip()

    def base_directory(self) -> str | None:
        """Return None: it is not a skill."""
        return None


def parse(document: Document) -> Entity | None:
    """Return the entity in a Markdown file; None if it is disabled.

    Raises FormatError.
    """
    head = read_head(document)
    return None if _is_disabled(head.fields) else make_from_head(document, head, (".md",))


def parse_config(source: Source, config: str, resolve: Resolve) -> Iterator[Entity | FormatError]:
    """Yield the commands and agents in a configuration file, and errors in single ones.

    Raises FormatError if the file cannot be parsed.
    """
    try:
        settings = parse_jsonc(config)
    except json.JSONDecodeError as error:
        raise FormatError(error.msg, error.lineno) from error
    except ValueError as error:
        raise FormatError(str(error)) from error
    seen: set[tuple[EntityKind, str]] = set()
    for key, kind in _KEYS:
        definitions = settings.get(key)
        if definitions is not None and not isinstance(definitions, dict):
            yield FormatError(f'"{key}" is not an object', _line_of(config, key))
            continue
        for name, definition in cast("dict[str, Any]", definitions or {}).items():
            if (kind, name) not in seen:
                seen.add((kind, name))
                try:
                    entity = _parse_definition(kind, name, definition, source, resolve)
                except FormatError as error:
                    yield FormatError(error.reason, _line_of(config, name))
                else:
                    if entity is not None:
                        yield entity


def _parse_definition(kind: EntityKind, name: str, definition: Any, source: Source, resolve: Resolve) -> Entity | None:
    if not isinstance(definition, dict):
        raise FormatError(f'"{name}" is not an object')
    fields = cast("Fields", _as_text(cast("dict[str, Any]", definition), _MAX_DEPTH))
    if _is_disabled(fields):
        return None
    usable = name.replace("/", ":") if kind is EntityKind.COMMAND else name
    if not is_name(usable):
        raise FormatError(f'"{name[:64]}" cannot be a name')
    template = text(fields.get("template" if kind is EntityKind.COMMAND else "prompt"))
    return make_entity(kind, usable, fields, _read_prompt(template, resolve), source)


def _read_prompt(template: str, resolve: Resolve) -> str | Body:
    parts: list[str | Body] = list(_FILE.split(template))
    if len(parts) == 1:
        return template.strip()
    parts[1::2] = [resolve(cast("str", reference).strip()) for reference in parts[1::2]]
    return Joined(tuple(parts))


def _is_disabled(fields: Mapping[str, Value]) -> bool:
    return is_true(fields.get("disable")) or is_true(fields.get("disabled"))


def _as_text(value: Any, depth: int) -> Value:
    """Convert JSON to the form of front matter, in which all scalars are text."""
    if depth == 0:
        raise FormatError(f"it is nested deeper than {_MAX_DEPTH}")
    if isinstance(value, dict):
        return {
            key: _as_text(item, depth - 1) for key, item in cast("dict[str, Any]", value).items() if item is not None
        }
    if isinstance(value, list):
        return [_as_text(item, depth - 1) for item in cast("list[Any]", value)]
    return value if isinstance(value, str) else json.dumps(value)


def _line_of(config: str, key: str) -> int:
    """Return the line of the first text like the key: usually the key itself."""
    return config.count("\n", 0, max(0, config.find(json.dumps(key, ensure_ascii=False)))) + 1
