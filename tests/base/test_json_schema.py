"""The check of plain data against the JSON Schemas of msgspec agrees with msgspec itself."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from atomic.base.json_schema import Mismatch, mismatch, sketch


class Note(msgspec.Struct):
    text: str
    stars: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=2, max_length=4, pattern="^[a-z]+$")]


class Approve(msgspec.Struct, tag=True):
    by: str


class Reject(msgspec.Struct, tag=True):
    reason: str
    notes: list[Note] = []


class Tree(msgspec.Struct):
    value: int
    children: list[Tree] = []


TYPES: list[Any] = [
    int, float, str, bool, None, list[int], dict[str, int], tuple[int, str], set[str], Any, int | None, int | str,
    Literal["yes", "no"], Literal[1, "one"], Note, Strict, Approve | Reject, Tree, list[Note], dict[str, Note],
    date, Annotated[datetime, msgspec.Meta(tz=True)], UUID,
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    Annotated[float, msgspec.Meta(gt=0, lt=10, multiple_of=0.5)], Note | None, list[Note] | str,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, 1, 3, 7, -1, 2.5, 11.0, "", "yes", "ab", "abcdef", "AB", "2026-01-02", "2026-01-02T10:00:00Z",
    "12345678-1234-5678-1234-567812345678", [], [1], [1, 2], [1, 2, 3], ["a"], [1, "a"], [None], {}, {"a": 1},
    {"text": "x"}, {"text": "x", "stars": 9}, {"text": 1}, {"text": "x", "more": 1}, {"name": "ab"},
    {"name": "a"}, {"name": "ab", "x": 1}, {"name": "A1"}, {"type": "Approve", "by": "me"}, {"type": "Reject"},
    {"type": "Reject", "reason": "r", "notes": [{"text": "t", "stars": 0}]}, {"type": "Other"}, {"by": "me"},
    {"value": 1}, {"value": 1, "children": [{"value": 2, "children": [{"value": "x"}]}]}, [{"text": "x"}],
    [{"text": "x"}, {"stars": 1}], {"k": {"text": "x"}}, {"k": {"text": 5}}, ["a", "a"],
]  # fmt: skip


def fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_it_accepts_what_msgspec_accepts(kind: Any) -> None:
    schema = msgspec.json.schema(kind)
    different = [value for value in VALUES if (mismatch(value, schema) is None) != fits(value, kind)]
    assert different == []


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (bool, "yes", "Expected `bool`, got `str`"),
        (Note, {}, "Object missing required field `text`"),
        (Note, {"text": "x", "stars": 9}, "stars: Expected `int` <= 5"),
        (Strict, {"name": "ab", "x": 1}, "Object contains unknown field `x`"),
        (list[Note], [{"text": "x"}, {"text": 7}], "[1].text: Expected `str`, got `int`"),
        (dict[str, Note], {"k": {"text": 7}}, "k.text: Expected `str`, got `int`"),
        (Literal["yes", "no"], "maybe", 'Expected one of "no", "yes", got "maybe"'),
        (Approve | Reject, {"type": "Reject"}, "Object missing required field `reason`"),
        (Approve | Reject, {"type": "x"}, 'type: Expected one of "Approve", "Reject", got "x"'),
        (Note | None, {"text": 1}, "text: Expected `str`, got `int`"),
        (Note | None, 7, 'Expected `{"text": str, "stars"?: int} | null`, got `int`'),
        (Tree, {"value": 1, "children": [{"value": "x"}]}, "children[0].value: Expected `int`, got `str`"),
    ],
)
def test_it_says_where_and_why(kind: Any, value: Any, text: str) -> None:
    assert str(mismatch(value, msgspec.json.schema(kind))) == text


def test_endless_data_ends() -> None:
    deep: Any = {"value": 1}
    for _ in range(300):
        deep = {"value": 1, "children": [deep]}
    found = mismatch(deep, msgspec.json.schema(Tree))
    assert isinstance(found, Mismatch)
    assert found.reason == "it is nested too deeply"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Note, '{"text": str, "stars"?: int}'),
        (list[str], "[str, …]"),
        (Literal["a", "b"], '"a" | "b"'),
        (Tree, '{"value": int, "children"?: [{"value": int, "children"?: […, …]}, …]}'),
        (int | None, "int | null"),
    ],
)
def test_a_sketch_is_one_line(kind: Any, text: str) -> None:
    assert sketch(msgspec.json.schema(kind)) == text
