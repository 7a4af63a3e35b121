"""Check plain data against a JSON Schema, as far as msgspec writes one for a type.

The type itself is known only where the code runs that has it. A question in a journal has
only the schema, and its answer is checked before anything is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec

Schema = Mapping[str, Any]


class Mismatch(NamedTuple):
    """Where a value does not fit its schema, and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.path else self.reason


_NAMES = {
    "null": "null", "boolean": "bool", "integer": "int", "number": "float", "string": "str", "array": "array",
    "object": "object",
}  # fmt: skip
_FORMATS: Mapping[str, Any] = {
    "date-time": datetime, "date": date, "time": time, "duration": timedelta, "uuid": UUID, "decimal": Decimal,
}  # fmt: skip
_MAX_DEPTH = 100


def mismatch(value: Any, schema: Schema) -> Mismatch | None:
    """Return where plain data first differs from a schema, or None if it fits."""
    return _Checker(schema).check(value, schema, "", 0)


def sketch(schema: Schema) -> str:
    """Return the form of the data that fits a schema, in one line: `{"ok": bool}`."""
    return _Checker(schema).sketch(schema, 0)


class _Checker:
    def __init__(self, root: Schema) -> None:
        self._definitions: Mapping[str, Schema] = root.get("$defs", {})

    def _resolved(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._definitions[str(schema["$ref"]).rpartition("/")[2]]
        return schema

    def check(self, value: Any, schema: Schema, path: str, depth: int) -> Mismatch | None:
        if depth > _MAX_DEPTH:
            return Mismatch(path, "it is nested too deeply")
        schema = self._resolved(schema)
        if "anyOf" in schema:
            return self._check_any(value, schema, path, depth)
        allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if allowed is not None:
            return (
                None
                if _is_among(value, allowed)
                else Mismatch(path, f"Expected one of {_listed(allowed)}, got {_shown(value)}")
            )
        kind = schema.get("type")
        kinds = [kind] if isinstance(kind, str) else kind
        if kinds is not None and not any(_is_of(value, one) for one in kinds):
            expected = " | ".join(_NAMES.get(one, one) for one in kinds)
            return Mismatch(path, f"Expected `{expected}`, got `{_kind_of(value)}`")
        if isinstance(value, Mapping):
            return self._check_object(cast("Mapping[str, Any]", value), schema, path, depth)
        if isinstance(value, list):
            return self._check_array(cast("list[Any]", value), schema, path, depth)
        problem = _text_problem(value, schema) if isinstance(value, str) else _number_problem(value, schema)
        return None if problem is None else Mismatch(path, problem)

    def _check_any(self, value: Any, schema: Schema, path: str, depth: int) -> Mismatch | None:
        tag = schema.get("discriminator", {}).get("propertyName")
        if tag is not None and isinstance(value, Mapping):
            mapping = schema["discriminator"]["mapping"]
            chosen = cast("Mapping[str, Any]", value).get(tag)
            if chosen not in mapping:
                return Mismatch(_inside(path, tag), f"Expected one of {_listed(list(mapping))}, got {_shown(chosen)}")
            return self.check(value, {"$ref": mapping[chosen]}, path, depth + 1)
        found = [self.check(value, one, path, depth + 1) for one in schema["anyOf"]]
        wrong = [one for one in found if one is not None]
        if len(wrong) < len(found):
            return None
        deepest = max(wrong, key=lambda one: len(one.path))
        if deepest.path != path:  # the value is meant to be of that kind
            return deepest
        return Mismatch(path, f"Expected `{self.sketch(schema, 0)}`, got `{_kind_of(value)}`")

    def _check_object(self, value: Mapping[str, Any], schema: Schema, path: str, depth: int) -> Mismatch | None:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        others: Any = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                return Mismatch(path, f"Object missing required field `{name}`")
        for name, item in value.items():
            inner: Any = properties.get(name, others)
            if inner is False:
                return Mismatch(path, f"Object contains unknown field `{name}`")
            if isinstance(inner, Mapping):
                found = self.check(item, cast("Schema", inner), _inside(path, name), depth + 1)
                if found is not None:
                    return found
        return _length_problem(len(value), schema, path, "Properties", "object")

    def _check_array(self, value: list[Any], schema: Schema, path: str, depth: int) -> Mismatch | None:
        first: Sequence[Schema] = schema.get("prefixItems", ())
        rest: Any = schema.get("items", True)
        for index, item in enumerate(value):
            inner: Any = first[index] if index < len(first) else rest
            if inner is False:
                return Mismatch(path, f"Expected `array` of at most {len(first)} items")
            if isinstance(inner, Mapping):
                found = self.check(item, cast("Schema", inner), f"{path}[{index}]", depth + 1)
                if found is not None:
                    return found
        return _length_problem(len(value), schema, path, "Items", "array")

    def sketch(self, schema: Schema, depth: int) -> str:
        schema = self._resolved(schema)
        if depth > 3:
            return "…"
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(self.sketch(one, depth + 1) for one in schema["anyOf"]))
        if "enum" in schema or "const" in schema:
            return " | ".join(_shown(one) for one in schema.get("enum", [schema.get("const")]))
        if "properties" in schema:
            required = schema.get("required", ())
            fields = [
                f'"{name}"{"" if name in required else "?"}: {self.sketch(inner, depth + 1)}'
                for name, inner in schema["properties"].items()
            ]
            return f"{{{', '.join(fields)}}}"
        if "items" in schema and isinstance(schema["items"], Mapping):
            return f"[{self.sketch(cast('Schema', schema['items']), depth + 1)}, …]"
        kind = schema.get("type", "any")
        return " | ".join(_NAMES.get(one, str(one)) for one in ([kind] if isinstance(kind, str) else kind))


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_of(value: Any, kind: str) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, Mapping)


def _kind_of(value: Any) -> str:
    return next((name for kind, name in _NAMES.items() if _is_of(value, kind)), type(value).__name__)


def _is_among(value: Any, allowed: Sequence[Any]) -> bool:
    return any(type(value) is type(one) and value == one for one in allowed)


def _listed(allowed: Sequence[Any]) -> str:
    return ", ".join(_shown(one) for one in allowed)


def _shown(value: Any) -> str:
    return f"{msgspec.json.encode(value).decode():.60}"


def _length_problem(length: int, schema: Schema, path: str, what: str, kind: str) -> Mismatch | None:
    least = schema.get(f"min{what}", 0)
    most = schema.get(f"max{what}", length)
    if least <= length <= most:
        return None
    return Mismatch(
        path, f"Expected `{kind}` of length {'>=' if length < least else '<='} {least if length < least else most}"
    )


def _text_problem(value: str, schema: Schema) -> str | None:
    length = _length_problem(len(value), schema, "", "Length", "str")
    if length is not None:
        return length.reason
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        return f"Expected `str` matching regex {schema['pattern']!r}"
    kind = _FORMATS.get(schema.get("format", ""))
    if kind is None:
        return None
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _number_problem(value: Any, schema: Schema) -> str | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    limits = {
        "minimum": (value >= schema.get("minimum", value), ">="),
        "maximum": (value <= schema.get("maximum", value), "<="),
        "exclusiveMinimum": (value > schema.get("exclusiveMinimum", value - 1), ">"),
        "exclusiveMaximum": (value < schema.get("exclusiveMaximum", value + 1), "<"),
        "multipleOf": (value % schema.get("multipleOf", 1) == 0 or "multipleOf" not in schema, "a multiple of"),
    }
    for name, (is_good, sign) in limits.items():
        if not is_good:
            return f"Expected `{_kind_of(value)}` {sign} {schema[name]}"
    return None
