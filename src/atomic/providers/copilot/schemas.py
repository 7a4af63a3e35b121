"""Convert a JSON Schema to the strict form: objects closed, all fields required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

_NOT_STRICT = frozenset({"default", "title", "prefixItems", "discriminator"})


class LooseSchemaError(Exception):
    """A schema with an object of unknown fields cannot be strict."""


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema with all objects closed. Raise LooseSchemaError."""
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
