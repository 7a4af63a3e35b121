"""Convert an agent's form to questions, and chosen labels to values of the form.

A form is a JSON Schema of an object with plain fields, as MCP defines it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from atomic.questions import Option, Question

Value = str | float | bool | list[str]
_YES = "Yes"
_NO = "No"
_TYPES: Mapping[str, Any] = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "array": list}


class _Choice(msgspec.Struct, frozen=True):
    const: Any
    title: str | None = None
    description: str | None = None


class _Field(msgspec.Struct, frozen=True, rename="camel"):
    type: Any = "string"
    title: str | None = None
    description: str | None = None
    default: Any = None
    enum: list[Any] | None = None
    enum_names: list[Any] | None = None
    one_of: list[_Choice] | None = None
    any_of: list[_Choice] | None = None
    items: _Field | None = None

    @property
    def choices(self) -> dict[str, _Choice]:
        """Return the choices by label: yes and no, titles, or plain values.

        None of them means free text.
        """
        if self.type == "boolean":
            return {_YES: _Choice("true"), _NO: _Choice("false")}
        source = self.items or _Field() if self.type == "array" else self
        titled = source.one_of or source.any_of
        if titled:
            return {str(choice.title or choice.const): choice for choice in titled}
        values = source.enum or []
        labels = source.enum_names or values
        return {str(label): _Choice(value) for label, value in zip(labels, values, strict=False)}


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, _Field] | None = None
    required: list[str] | None = None


class Form:
    """One form: a question for each field.

    Raise msgspec.ValidationError for a schema that does not describe a form.
    """

    def __init__(self, message: str, schema: Mapping[str, Any] | None) -> None:
        given = msgspec.convert(schema or {}, _Schema)
        self._fields = given.properties or {"answer": _Field()}
        self._required = given.required or []
        is_only = len(self._fields) == 1
        self.questions = tuple(_question(name, field, message, is_only=is_only) for name, field in self._fields.items())

    @property
    def is_supported(self) -> bool:
        """Return whether all fields are of a known kind."""
        return all(field.type in _TYPES and (field.choices or field.type != "array") for field in self._fields.values())

    def values(self, answers: Sequence[Sequence[str]]) -> dict[str, Value]:
        """Return the values of the fields; a field without an answer is left out."""
        pairs = zip(self._fields.items(), answers, strict=False)
        return {name: _value(field, chosen) for (name, field), chosen in pairs if chosen or field.type == "array"}

    def accepts(self, values: Mapping[str, Value]) -> bool:
        """Return whether no required value is missing and each fits its field."""
        fits = all(isinstance(value, _TYPES[self._fields[name].type]) for name, value in values.items())
        return fits and values.keys() >= set(self._required)


def _question(name: str, field: _Field, message: str, *, is_only: bool) -> Question:
    text = field.title or field.description or name
    header = message
    if is_only:
        text = message or text
        header = field.title or ""
        if header == text:
            header = ""
    if field.description and field.description != text:
        text = f"{text}\n{field.description}"
    default = None
    if field.default is not None and not isinstance(field.default, list):
        default = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
        default = next((label for label, one in field.choices.items() if str(one.const) == default), default)
    return Question(
        text,
        options=[Option(label, choice.description or "") for label, choice in field.choices.items()],
        default=default,
        header=header,
        multi_select=field.type == "array",
        id=name,
    )


def _value(field: _Field, chosen: Sequence[str]) -> Value:
    """Return the value of the chosen labels; the user may also enter free text."""
    choices = field.choices
    values = [str(choices[label].const) if label in choices else label for label in chosen]
    if field.type == "array":
        return values
    if field.type == "boolean" and values[0] in ("true", "false"):
        return values[0] == "true"
    if field.type in ("number", "integer"):
        try:
            return float(values[0]) if "." in values[0] else int(values[0])
        except ValueError:
            pass
    return ", ".join(values)
