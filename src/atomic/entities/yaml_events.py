"""YAML as plain texts, lists and mappings, read event by event.

A limit is noticed before anything is built: no tag makes an object, no alias makes a short text a huge value, no depth
ends the program. Importing this module costs as much as reading hundreds of files: do it when one needs it.
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

from atomic.entities.errors import FormatError
from atomic.entities.values import Fields, Value, is_hint

DEPTH = 20
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml the slow one, which gives the same


class NotYamlError(Exception):
    """The text breaks the rules of YAML, or is no mapping."""


def read_yaml(block: str, first_line: int = 1) -> Fields:
    """The mapping in a text. Raises NotYamlError, and FormatError for a tag, an alias or too great a depth."""
    try:
        return _Reader(block, first_line).document()
    except yaml.YAMLError as error:
        raise NotYamlError(str(error)) from error


class _Reader:
    """Takes events and builds values; `_depth` is that of the value at hand."""

    def __init__(self, block: str, first_line: int) -> None:
        self._next = cast("Callable[[], Event]", _LOADER(block).get_event)
        self._block, self._first_line, self._depth = block, first_line, 0

    def document(self) -> Fields:
        self._next()  # the stream's start
        if not isinstance(self._next(), DocumentStartEvent):
            return {}
        root = self._next()
        fields = self._value(root)[0]
        self._next()  # the document's end
        if not isinstance(fields, dict) or not isinstance(self._next(), StreamEndEvent):
            raise NotYamlError("it is no mapping, or more than one")
        return fields

    def _value(self, event: Event) -> tuple[Value, str]:
        """A value, and the text that it was read from."""
        self._check(event)
        if isinstance(event, ScalarEvent):
            return event.value, event.value
        self._depth += 1
        if self._depth > DEPTH:
            raise self._refused(event, f"the front matter is nested deeper than {DEPTH}")
        value, end = self._mapping() if isinstance(event, MappingStartEvent) else self._sequence()
        self._depth -= 1
        return value, " ".join(self._block[event.start_mark.index : end.end_mark.index].split())

    def _mapping(self) -> tuple[Fields, Event]:
        fields: Fields = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            self._check(event)
            if not isinstance(event, ScalarEvent):
                raise NotYamlError("a key is no text")
            value, source = self._value(self._next())
            fields[event.value] = source if is_hint(event.value) else value
        return fields, event

    def _sequence(self) -> tuple[list[Value], Event]:
        items: list[Value] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._value(event)[0])
        return items, event

    def _check(self, event: Event) -> None:
        if isinstance(event, AliasEvent):
            raise self._refused(event, "the front matter has a YAML alias")
        if isinstance(event, NodeEvent) and getattr(event, "tag", None) is not None:
            raise self._refused(event, "the front matter has a YAML tag")

    def _refused(self, event: Event, reason: str) -> FormatError:
        return FormatError(reason, self._first_line + event.start_mark.line)
