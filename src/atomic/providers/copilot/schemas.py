"""A JSON Schema in the strict form that models are bound to: every object closed, every field required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_NOT_STRICT = frozenset({"default", "title", "prefixItems", "discriminator"})


class LooseSchemaError(Exception):
    """A schema with an object whose fields nobody knows: no model can be bound to it."""


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with all its objects closed. Raises LooseSchemaError."""
    result = {key: _strict(key, value) for key, value in schema.items() if key not in _NOT_STRICT}
    if result.get("type") == "object":
        if "properties" not in result or isinstance(schema.get("additionalProperties"), Mapping):
            raise LooseSchemaError
        result |= {"additionalProperties": False, "required": list(result["properties"])}
    return result


def _strict(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: strict(one) for name, one in cast("Mapping[str, Mapping[str, Any]]", value).items()}
    if key in ("items", "additionalProperties") and isinstance(value, Mapping):
        return strict(cast("Mapping[str, Any]", value))
    if key in ("anyOf", "oneOf", "allOf"):
        return [strict(one) for one in cast("list[Mapping[str, Any]]", value)]
    return value
