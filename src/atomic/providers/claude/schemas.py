"""Reduce a JSON Schema to keywords that Claude Code and its service accept. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_NAMED = frozenset({"properties", "$defs"})  # a schema per name
_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
_INNER = frozenset({"items", "additionalProperties"})


def understood(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same schema, or a wider one: the program refuses unknown keywords.

    It does not know `discriminator`, which is OpenAPI's, nor `prefixItems`, and the
    service does not know the older form of that. So a tuple becomes a list whose items
    may be of any of its types. The value is checked against its own type in any case.
    """
    result = {key: _inner(key, value) for key, value in schema.items() if key != "discriminator"}
    if "prefixItems" in result:
        places = cast("list[Any]", result.pop("prefixItems"))
        result["items"] = {"anyOf": places} if places else {}
    return result


def _inner(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _schema(one) for name, one in cast("Mapping[str, Any]", value).items()}
    if key in _LISTS and isinstance(value, list):
        return [_schema(one) for one in cast("list[Any]", value)]
    return _schema(value) if key in _INNER else value


def _schema(value: Any) -> Any:
    return understood(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
