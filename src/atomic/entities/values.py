"""What a field of a definition can be, and how to ask for it: all scalars are text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

Value: TypeAlias = Union[str, "Sequence[Value]", "Mapping[str, Value]"]
Fields: TypeAlias = dict[str, Value]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_HINTS = frozenset({"argument-hint", "argument_hint", "argumenthint"})


def is_hint(key: str) -> bool:
    """Whether the field is an argument hint, which is always the source text."""
    return key.lower() in _HINTS


def first(fields: Mapping[str, Value], *keys: str) -> Value | None:
    """The field with the first of these names that is there."""
    for key in keys:
        if key in fields:
            return fields[key]
    return None


def text(value: Value | None) -> str:
    """A scalar; the first of a list; empty for all else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value:
        return text(value[0])
    return ""


def is_true(value: Value | None) -> bool:
    """Whether it says yes in one of YAML's words."""
    return isinstance(value, str) and value.strip().lower() in _TRUE


def is_false(value: Value | None) -> bool:
    """Whether it says no in one of YAML's words."""
    return isinstance(value, str) and value.strip().lower() in _FALSE
