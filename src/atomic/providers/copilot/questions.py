"""Convert Copilot's forms to questions, and chosen labels to values of the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from atomic.questions import Option, Question

Value = str | float | bool | list[str]
_YES = "Yes"
_NO = "No"


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    labels: Mapping[str, str]  # shown label -> value
    question: Question


class Form:
    """One form: a question for each field."""

    def __init__(self, message: str, schema: Mapping[str, Any] | None) -> None:
        properties = cast("Mapping[str, Mapping[str, Any]]", (schema or {}).get("properties") or {"answer": {}})
        self._fields = [_field(name, spec, message, alone=len(properties) == 1) for name, spec in properties.items()]

    @property
    def questions(self) -> tuple[Question, ...]:
        return tuple(field.question for field in self._fields)

    def values(self, answers: Sequence[Sequence[str]]) -> dict[str, Value]:
        """Return the values of the fields; a field without an answer is left out."""
        pairs = zip(self._fields, answers, strict=False)
        return {field.name: _value(field, chosen) for field, chosen in pairs if chosen or field.kind == "array"}


def _field(name: str, spec: Mapping[str, Any], message: str, *, alone: bool) -> _Field:
    kind = str(spec.get("type", "string"))
    labels = _labels(spec, kind)
    title = str(spec.get("title") or "")
    description = str(spec.get("description") or "")
    text = message if alone and message else title or description or name
    header = message
    if alone:
        header = title if title != text else ""
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
    """Return the choices: plain values, values with titles, or yes and no."""
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
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return next((label for label, value in labels.items() if value == text), text)


def _value(field: _Field, chosen: Sequence[str]) -> Value:
    """Return the value of the chosen labels; the user may also enter free text."""
    values = [field.labels.get(label, label) for label in chosen]
    if field.kind == "array":
        return values
    if field.kind == "boolean" and values[0] in ("true", "false"):
        return values[0] == "true"
    if field.kind in ("number", "integer") and (number := _as_number(values[0])) is not None:
        return number
    return ", ".join(values)


def _as_number(text: str) -> float | None:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return None
