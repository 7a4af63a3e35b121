"""Copilot asks by a form; here it becomes questions, and the labels that were chosen become its fields again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from atomic.questions import Option, Question

Value = str | float | bool | list[str]
_YES, _NO = "Yes", "No"


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    labels: Mapping[str, str]  # what is shown -> what is meant
    question: Question


class Form:
    """One form: a question for each field."""

    def __init__(self, message: str, schema: Mapping[str, Any] | None) -> None:
        properties = cast("Mapping[str, Mapping[str, Any]]", (schema or {}).get("properties") or {"answer": {}})
        self._fields = [_field(name, spec, message, alone=len(properties) == 1) for name, spec in properties.items()]

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(field.question for field in self._fields)

    def filled_in(self, answers: Sequence[Sequence[str]]) -> dict[str, Value]:
        """The fields, from what was chosen for each question; where nothing was, the field stays away."""
        pairs = zip(self._fields, answers, strict=False)
        return {field.name: _value(field, chosen) for field, chosen in pairs if chosen or field.kind == "array"}


def _field(name: str, spec: Mapping[str, Any], message: str, *, alone: bool) -> _Field:
    kind = str(spec.get("type", "string"))
    labels = _labels(spec, kind)
    title, description = str(spec.get("title") or ""), str(spec.get("description") or "")
    text = message if alone and message else title or description or name
    header = title if alone and title != text else "" if alone else message
    if description and description != text:
        text = f"{text}\n{description}"
    question = Question(
        text,
        options=[Option(label) for label in labels],
        default=_default(spec, labels),
        header=header,
        multi_select=kind == "array",
        id=name,
    )
    return _Field(name, kind, labels, question)


def _labels(spec: Mapping[str, Any], kind: str) -> dict[str, str]:
    """What can be chosen: plain values, values with titles, or yes and no."""
    if kind == "boolean":
        return {_YES: "true", _NO: "false"}
    source = cast("Mapping[str, Any]", spec.get("items") or {}) if kind == "array" else spec
    titled = cast("list[Mapping[str, Any]]", source.get("oneOf") or source.get("anyOf") or [])
    if titled:
        return {str(one.get("title") or one.get("const")): str(one.get("const")) for one in titled}
    values = cast("list[object]", source.get("enum") or [])
    names = cast("list[object]", source.get("enumNames") or values)
    return {str(name): str(value) for name, value in zip(names, values, strict=False)}


def _default(spec: Mapping[str, Any], labels: Mapping[str, str]) -> str | None:
    default = spec.get("default")
    if default is None or isinstance(default, list):
        return None
    meant = str(default).lower() if isinstance(default, bool) else str(default)
    return next((label for label, value in labels.items() if value == meant), meant)


def _value(field: _Field, chosen: Sequence[str]) -> Value:
    """What was meant; a person may also have answered in own words."""
    meant = [field.labels.get(label, label) for label in chosen]
    if field.kind == "array":
        return meant
    if field.kind == "boolean" and meant[0] in ("true", "false"):
        return meant[0] == "true"
    if field.kind in ("number", "integer") and (number := _as_number(meant[0])) is not None:
        return number
    return ", ".join(meant)


def _as_number(text: str) -> float | None:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return None
