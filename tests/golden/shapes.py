"""Describe types and JSON values as text: one line for each field, so that a diff shows the field that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec
from msgspec import inspect

INDENT = "    "
_PLAIN: Mapping[type[inspect.Type], str] = {
    inspect.AnyType: "any",
    inspect.BoolType: "bool",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: "datetime",
    inspect.FloatType: "float",
    inspect.IntType: "int",
    inspect.NoneType: "null",
    inspect.RawType: "any",
    inspect.StrType: "string",
}


def describe_union(union: Any, known: Mapping[str, Any]) -> list[str]:
    """Describe the tagged structs of a union in the order of their tags; `known` names other unions."""
    lines: list[str] = []
    for struct in sorted(map(_struct_type, get_args(union)), key=lambda struct: str(struct.tag)):
        lines.append(str(struct.tag))
        lines += [f"{INDENT}{line}" for line in describe_fields(struct.cls, known)]
    return lines


def describe_fields(struct: type[msgspec.Struct], known: Mapping[str, Any] | None = None) -> list[str]:
    """Describe a struct's fields as they are written, one a line."""
    return [_field(field, known or {}) for field in _struct_type(struct).fields]


def _struct_type(struct: Any) -> inspect.StructType:
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    return found


def _field(field: inspect.Field, known: Mapping[str, Any]) -> str:
    words = f"{field.encode_name}: {_type(field.type, known)}"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"{words} = {_json(field.default_factory())}"
    return words if field.default is msgspec.NODEFAULT else f"{words} = {_json(field.default)}"


def _type(found: inspect.Type, known: Mapping[str, Any]) -> str:
    match found:
        case inspect.Metadata():
            return _type(found.type, known)
        case inspect.StructType():
            fields = ", ".join(_field(field, known) for field in found.fields)
            return f"[{fields}]" if found.array_like else f"{{{fields}}}"
        case inspect.EnumType():
            return " | ".join(_json(member.value) for member in found.cls)
        case inspect.LiteralType():
            return " | ".join(map(_json, found.values))
        case inspect.DictType():
            return f"map of {_type(found.key_type, known)} to {_type(found.value_type, known)}"
        case inspect.TupleType():
            return f"[{', '.join(_type(item, known) for item in found.item_types)}]"
        case inspect.CollectionType():
            return f"list of {_type(found.item_type, known)}"
        case inspect.UnionType():
            return _name_of_union(found, known) or " | ".join(_type(one, known) for one in found.types)
        case _:
            return _PLAIN[type(found)]


def _name_of_union(found: inspect.UnionType, known: Mapping[str, Any]) -> str:
    """Return the name of a known union of structs; they need not be described twice."""
    structs = {one.cls for one in found.types if isinstance(one, inspect.StructType)}
    return next((name for name, union in known.items() if structs == set(get_args(union))), "")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def describe_values(values: Iterable[Any]) -> list[str]:
    """Describe JSON objects of one kind together: each key with its types, `?` if some do not have it."""
    objects = list(values)
    keys = sorted({key for one in objects for key in one})
    lines: list[str] = []
    for key in keys:
        found = [one[key] for one in objects if key in one]
        mark = "" if len(found) == len(objects) else "?"
        lines.append(f"{key}{mark}: {' | '.join(sorted({_type_of_value(value) for value in found}))}")
        lines += [f"{INDENT}{line}" for line in describe_values(_objects_in(found))]
    return lines


def describe_tagged_values(values: Iterable[Mapping[str, Any]]) -> list[str]:
    """Describe JSON objects by their `type`."""
    by_tag: dict[str, list[Mapping[str, Any]]] = {}
    for value in values:
        by_tag.setdefault(value["type"], []).append(value)
    lines: list[str] = []
    for tag, found in sorted(by_tag.items()):
        lines += [tag, *(f"{INDENT}{line}" for line in describe_values(found))]
    return lines


def _type_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case _:
            return "object"


def _objects_in(values: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the objects among the values, also those in lists."""
    found: list[dict[str, Any]] = []
    for value in values:
        if isinstance(value, dict):
            found.append(value)  # pyright: ignore[reportUnknownArgumentType]  # JSON
        elif isinstance(value, list):
            found += _objects_in(value)  # pyright: ignore[reportUnknownArgumentType]
    return found
