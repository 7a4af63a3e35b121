"""Read YAML as plain texts, lists and mappings, event by event.

A limit is checked before anything is built: a tag makes no object, an alias cannot
expand a short text to a huge value, and deep nesting cannot exhaust the stack. Import
this module only when needed: it takes longer than reading hundreds of files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)

from atomic.entities.frontmatter import Fields, Value
from atomic.entities.model import FormatError

_MAX_DEPTH = 20
_HINTS = frozenset({"argument-hint", "argument_hint", "argumenthint"})
# Without libyaml the slow loader, which gives the same result.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotYamlError(Exception):
    """The text is not valid YAML, or not one mapping with text keys."""


def read_yaml(block: str, first_line: int = 1) -> Fields:
    """Return the mapping in a text.

    Raises NotYamlError, and FormatError for a tag, an alias or too much nesting.
    """
    try:
        return _Reader(block, first_line).document()
    except yaml.YAMLError as error:
        raise NotYamlError(str(error)) from error


class _Reader:
    """Builds values from events; `_depth` is the nesting of the current value."""

    def __init__(self, block: str, first_line: int) -> None:
        self._next = cast("Callable[[], Event]", _LOADER(block).get_event)
        self._block = block
        self._first_line = first_line
        self._depth = 0

    def document(self) -> Fields:
        # The start of the stream.
        self._next()
        if not isinstance(self._next(), DocumentStartEvent):
            return {}
        fields = self._value(self._next())[0]
        # The end of the document.
        self._next()
        if not isinstance(fields, dict) or not isinstance(self._next(), StreamEndEvent):
            raise NotYamlError("not a mapping, or more than one document")
        return fields

    def _value(self, event: Event) -> tuple[Value, str]:
        """Return a value and its source text."""
        self._check(event)
        if isinstance(event, ScalarEvent):
            return event.value, event.value
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._refuse(event, f"the front matter is nested deeper than {_MAX_DEPTH}")
        value, end = self._mapping() if isinstance(event, MappingStartEvent) else self._sequence()
        self._depth -= 1
        return value, " ".join(self._block[event.start_mark.index : end.end_mark.index].split())

    def _mapping(self) -> tuple[Fields, Event]:
        fields: Fields = {}
        event = self._next()
        while not isinstance(event, MappingEndEvent):
            self._check(event)
            if not isinstance(event, ScalarEvent):
                raise NotYamlError("a key is not a text")
            value, source = self._value(self._next())
            fields[event.value] = source if event.value.lower() in _HINTS else value
            event = self._next()
        return fields, event

    def _sequence(self) -> tuple[list[Value], Event]:
        items: list[Value] = []
        event = self._next()
        while not isinstance(event, SequenceEndEvent):
            items.append(self._value(event)[0])
            event = self._next()
        return items, event

    def _check(self, event: Event) -> None:
        if isinstance(event, AliasEvent):
            raise self._refuse(event, "the front matter has a YAML alias")
        if isinstance(event, NodeEvent) and getattr(event, "tag", None) is not None:
            raise self._refuse(event, "the front matter has a YAML tag")

    def _refuse(self, event: Event, reason: str) -> FormatError:
        return FormatError(reason, self._first_line + event.start_mark.line)
