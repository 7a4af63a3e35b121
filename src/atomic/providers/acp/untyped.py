"""Read data of any shape, as agents send it."""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

StructT = TypeVar("StructT", bound=msgspec.Struct)


def as_object(data: Any) -> dict[str, Any]:
    """Return the object, an empty one for anything else."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def text_at(data: Any, *path: str) -> str:
    """Return the text at a path through objects, else ""."""
    for key in path:
        data = as_object(data).get(key)
    return data if isinstance(data, str) else ""


def read(data: Any, kind: type[StructT]) -> StructT:
    """Read a message; ignore optional fields and list items of an unknown shape.

    Raise msgspec.ValidationError if a required field cannot be read.
    """
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError:
        if not isinstance(data, dict):
            raise
        return msgspec.convert(_readable(as_object(data), kind), kind, strict=False)


def _readable(data: dict[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the readable fields of an object."""
    kept: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in data:
            value = _readable_part(data[field.encode_name], field.type)
            if field.required or _fits(value, field.type):
                kept[field.encode_name] = value
    return kept


def _readable_part(value: Any, kind: Any) -> Any:
    for one in get_args(kind) if isinstance(kind, UnionType) else (kind,):
        if isinstance(value, dict) and isinstance(one, type) and issubclass(one, msgspec.Struct):
            return _readable(as_object(value), one)
        if isinstance(value, list) and get_origin(one) is tuple:
            item = get_args(one)[0]
            parts = [_readable_part(part, item) for part in cast("list[Any]", value)]
            return [part for part in parts if _fits(part, item)]
    return cast("Any", value)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return False
    return True
