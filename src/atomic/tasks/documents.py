"""Text or data that should be a task list -> its items, whatever the text looks like.

Hostile text is expected: the worst that it can get is a `NoTaskListError`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from atomic.tasks.errors import NoTaskListError

MAX_DEPTH = 100  # of nested values: what is read must be writable from any depth of the stack

Item = dict[str, Any]


def read_document(source: object, keys: Sequence[str]) -> tuple[list[Any], Item, str]:
    """Return the list that is the document or is under one of the keys, what is beside it, and that key.

    Of several lists the first that is not empty counts.

    Raises:
        NoTaskListError: there is none.
    """
    document, beside, key = _decode(source), dict[str, Any](), ""
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
    """Show any value as text: itself if it is one, else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def kind_of(value: object) -> str:
    """Say what a value is, in the words of JSON."""
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
    except (ValueError, TypeError) as error:  # each way in which text can be no JSON, and data no plain data
        raise NoTaskListError(" ".join(str(error).split())) from error
    if _is_deep(document):
        raise NoTaskListError(f"nested more than {MAX_DEPTH} levels deep")
    return document


def _encode(data: object) -> bytes | str:
    """Make text of data: one way in for both, and the caller's lists cannot change under us."""
    try:
        return msgspec.json.encode(data)
    except UnicodeEncodeError:
        import json  # it escapes half a surrogate pair, which `_repair` can then see

        return json.dumps(msgspec.to_builtins(data))


def _repair(text: str | bytes) -> str:
    """Make JSON of what is nearly JSON.

    A byte-order mark, another encoding, raw line breaks in a text, half a surrogate pair and numbers that no
    machine can hold: programs and the cut-off answers of agents contain them. Slower than msgspec, so it comes second.
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
    """The values within a value that may have values themselves."""
    values = cast("Item", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    return [child for child in values if isinstance(child, (dict, list))] if isinstance(value, (dict, list)) else []
