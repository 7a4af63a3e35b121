"""Convert an agent's form to questions, and chosen labels to values of the form.

A form is a JSON Schema of an object with plain fields, as MCP defines it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from atomic.questions import Option, Question

Value = str | float | bool | list[str]
_FREE_TEXT = "_custom"
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
    min_items: int | None = None

    @property
    def kind(self) -> str:
        """Return the type, without "null"; empty if there is not exactly one."""
        declared = cast("list[Any] | str", self.type)  # or anything else, which is no kind
        types = declared if isinstance(declared, list) else [declared]
        kinds = [one for one in types if isinstance(one, str) and one != "null"]
        return kinds[0] if len(kinds) == 1 else ""

    @property
    def choices(self) -> dict[str, _Choice]:
        """Return the choices by label: yes and no, titles, or plain values.

        Without choices, the user enters free text.
        """
        if self.kind == "boolean":
            return {_YES: _Choice("true"), _NO: _Choice("false")}
        source = self
        if self.kind == "array":
            source = self.items or _Field()
        titled = source.one_of or source.any_of
        if titled:
            return {_label(choice): choice for choice in titled}
        values = source.enum or []
        labels = source.enum_names or values
        return {str(label): _Choice(value) for label, value in zip(labels, values, strict=False)}


def _label(choice: _Choice) -> str:
    """Return the value if the title is the value with a description, as Claude Code's
    adapter has it, else the title.
    """
    title = choice.title or str(choice.const)
    return str(choice.const) if title.startswith(f"{choice.const} — ") else title


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, _Field] | None = None
    required: list[str] | None = None


class Form:
    """One form: a question for each field.

    Raise msgspec.ValidationError for a schema that does not describe a form.
    """

    def __init__(self, message: str, schema: Mapping[str, Any] | None) -> None:
        given = msgspec.convert(schema or {}, _Schema)
        fields = given.properties or {"answer": _Field()}
        self._required = given.required or []
        # A question of Atomic takes free text beside its choices; Claude Code has a
        # field of its own for it.
        self._free_texts = {
            f"{name}{_FREE_TEXT}"
            for name, field in fields.items()
            if field.choices and f"{name}{_FREE_TEXT}" in fields.keys() - set(self._required)
        }
        self._fields = {name: field for name, field in fields.items() if name not in self._free_texts}
        is_only = len(self._fields) == 1
        self.questions = tuple(_question(name, field, message, is_only=is_only) for name, field in self._fields.items())

    @property
    def is_supported(self) -> bool:
        """Return whether all fields are of a known kind."""
        return all(field.kind in _TYPES and (field.choices or field.kind != "array") for field in self._fields.values())

    def values(self, answers: Sequence[Sequence[str]]) -> dict[str, Value]:
        """Return the values of the fields.

        A field without an answer is left out. Choosing none of several is an answer, an
        empty list, unless the field demands more.
        """
        values: dict[str, Value] = {}
        for (name, field), chosen in zip(self._fields.items(), answers, strict=False):
            free_text = f"{name}{_FREE_TEXT}"
            if free_text in self._free_texts:
                own = [text for text in chosen if text not in field.choices]
                if own:
                    values[free_text] = ", ".join(own)
                    chosen = [text for text in chosen if text in field.choices]
                    if not chosen:
                        continue
            if chosen or (field.kind == "array" and not field.min_items):
                values[name] = _value(field, chosen)
        return values

    def accepts(self, values: Mapping[str, Value]) -> bool:
        """Return whether no required value is missing and each fits its field.

        The form must be supported.
        """
        fits = all(_fits(self._fields[name], value) for name, value in values.items() if name in self._fields)
        return fits and values.keys() >= set(self._required)


def _fits(field: _Field, value: Value) -> bool:
    if isinstance(value, list) and len(value) < (field.min_items or 0):
        return False
    return isinstance(value, _TYPES[field.kind])


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
        multi_select=field.kind == "array",
        id=name,
    )


def _value(field: _Field, chosen: Sequence[str]) -> Value:
    """Return the value of the chosen labels; the user may also enter free text."""
    choices = field.choices
    values = [str(choices[label].const) if label in choices else label for label in chosen]
    if field.kind == "array":
        return values
    if field.kind == "boolean" and values[0] in ("true", "false"):
        return values[0] == "true"
    if field.kind in ("number", "integer"):
        try:
            return float(values[0]) if "." in values[0] else int(values[0])
        except ValueError:
            pass
    return ", ".join(values)
