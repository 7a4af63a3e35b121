"""Decode text or data that should be a task list.

The text may be hostile; nothing worse than a `NoTaskListError` may happen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from atomic.tasks.task import NoTaskListError

MAX_DEPTH = 100  # of nested values, so that the list can be written at any depth of the stack

Item = dict[str, Any]


def read_document(source: object, keys: Sequence[str]) -> tuple[list[Any], Item, str]:
    """Return the list of a document, the other keys of the document, and the key of the
    list.

    The list is the document or under one of `keys`; the first that is not empty counts.

    Raises:
        NoTaskListError: the document has no list.
    """
    document = _decode(source)
    beside: Item = {}
    key = ""
    if isinstance(document, dict):
        beside = cast("Item", document)
        found = [key for key in keys if isinstance(beside.get(key), list)]
        if not found:
            named = " or ".join(f'"{key}"' for key in keys)
            raise NoTaskListError(f"an object without a list {named}")
        key = next((key for key in found if beside[key]), found[0])
        document = beside.pop(key)
    if not isinstance(document, list):
        raise NoTaskListError(f"{kind_of(document)} where a list should be")
    items = cast("list[Any]", document)
    if items and not any(isinstance(item, dict) for item in items):
        raise NoTaskListError(f"a list whose first item is {kind_of(items[0])}, without any task")
    return items, beside, key


def text_of(value: object) -> str:
    """Return a text as it is, and any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def kind_of(value: object) -> str:
    """Return the JSON type of a value, for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def _decode(source: object) -> object:
    try:
        text = source if isinstance(source, (str, bytes)) else _encode(source)
        try:
            document = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            document = msgspec.json.decode(_repair(text))
    except RecursionError:
        raise NoTaskListError(f"nested more than {MAX_DEPTH} levels deep") from None
    except (ValueError, TypeError) as error:  # the text is not JSON, or the data is not plain data
        raise NoTaskListError(" ".join(str(error).split())) from error
    if _is_deep(document):
        raise NoTaskListError(f"nested more than {MAX_DEPTH} levels deep")
    return document


def _encode(data: object) -> bytes | str:
    """Encode data, so that text and data are read in the same way and the data is
    copied.
    """
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        import json  # it escapes a lone surrogate, which `_repair` then replaces

        return json.dumps(msgspec.to_builtins(data))


def _repair(text: str | bytes) -> str:
    """Return valid JSON for text that is nearly JSON.

    Programs and agents write byte-order marks, other encodings, raw line breaks in
    texts, lone surrogates and numbers that are too big. This is slower than msgspec, so
    it is tried second.
    """
    import json

    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "replace")
    data = json.loads(text.removeprefix("\ufeff"), strict=False, parse_int=_int, parse_float=_float, parse_constant=str)
    text = json.dumps(data, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _int(digits: str) -> int | str:
    return int(digits) if len(digits) < 300 else digits


def _float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _is_deep(document: object) -> bool:
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        level = [child for value in level for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: object) -> list[Any]:
    """Return the inner objects and lists of a value."""
    if isinstance(value, dict):
        values = list(cast("Item", value).values())
    elif isinstance(value, list):
        values = cast("list[Any]", value)
    else:
        return []
    return [child for child in values if isinstance(child, (dict, list))]
