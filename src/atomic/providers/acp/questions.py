"""A form that an agent wants filled in, as questions to a person; and the answers as the form's contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acp.schema import (
    ElicitationBooleanPropertySchema,
    ElicitationIntegerPropertySchema,
    ElicitationMultiSelectPropertySchema,
    ElicitationNumberPropertySchema,
    ElicitationOtherPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    OtherMultiSelectItems,
    StringMultiSelectItems,
    TitledMultiSelectItems,
)

from atomic.questions import Option, Question

_YES, _NO = "Yes", "No"

Field = (
    ElicitationStringPropertySchema
    | ElicitationNumberPropertySchema
    | ElicitationIntegerPropertySchema
    | ElicitationBooleanPropertySchema
    | ElicitationMultiSelectPropertySchema
)


class Form:
    """A question for each field."""

    def __init__(self, message: str, fields: dict[str, Field], required: Sequence[str]) -> None:
        self._fields, self._required = fields, frozenset(required)
        self.questions = tuple(
            Question(
                _text(name, field, message if len(fields) == 1 else ""),
                options=[Option(choice.title, choice.description or "") for choice in _choices(field)],
                multi_select=isinstance(field, ElicitationMultiSelectPropertySchema),
                default=_default(field),
                header=field.title or name,
                id=name,
            )
            for name, field in fields.items()
        )

    def filled(self, answers: Sequence[Sequence[str]]) -> dict[str, Any] | None:
        """The contents; None where an answer is missing or does not fit its field."""
        contents: dict[str, Any] = {}
        for (name, field), labels in zip(self._fields.items(), answers, strict=True):
            if labels:
                contents[name] = _value(field, labels)
        complete = contents.keys() >= self._required and None not in contents.values()
        return contents if complete else None


def read_form(message: str, schema: ElicitationSchema) -> Form | None:
    """The form; None if it has a field of a kind that is not known."""
    fields: dict[str, Field] = {}
    for name, field in (schema.properties or {}).items():
        if isinstance(field, ElicitationOtherPropertySchema):
            return None
        if isinstance(field, ElicitationMultiSelectPropertySchema) and isinstance(field.items, OtherMultiSelectItems):
            return None
        fields[name] = field
    return Form(message, fields, schema.required or ())


def _text(name: str, field: Field, message: str) -> str:
    """All that is said about a field, and nothing twice."""
    said: list[str] = []
    for part in (message, field.title, field.description):
        if part and not any(part.lower() in other.lower() for other in said):
            said.append(part)
    return "\n".join(said) or name


def _plain(words: Sequence[str]) -> list[EnumOption]:
    return [EnumOption(const=word, title=word) for word in words]


def _choices(field: Field) -> Sequence[EnumOption]:
    """What may be chosen; nothing: any text."""
    match field:
        case ElicitationStringPropertySchema():
            return field.one_of or _plain(field.enum or ())
        case ElicitationBooleanPropertySchema():
            return _plain((_YES, _NO))
        case ElicitationMultiSelectPropertySchema(items=TitledMultiSelectItems(any_of=options)):
            return options
        case ElicitationMultiSelectPropertySchema(items=StringMultiSelectItems(enum=words)):
            return _plain(words)
        case _:
            return ()


def _default(field: Field) -> str | None:
    match field:
        case ElicitationStringPropertySchema(default=str(word)):
            return next((choice.title for choice in _choices(field) if choice.const == word), word)
        case ElicitationBooleanPropertySchema(default=bool(yes)):
            return _YES if yes else _NO
        case ElicitationNumberPropertySchema(default=number) | ElicitationIntegerPropertySchema(default=number):
            return None if number is None else str(number)
        case _:
            return None


def _value(field: Field, labels: Sequence[str]) -> Any:
    """What the labels stand for; None if that is nothing."""
    meant = {choice.title: choice.const for choice in _choices(field)}
    chosen = [meant.get(label, label) for label in labels]
    try:
        match field:
            case ElicitationMultiSelectPropertySchema():
                return chosen
            case ElicitationBooleanPropertySchema():
                return {_YES: True, _NO: False}.get(chosen[0])
            case ElicitationIntegerPropertySchema():
                return int(chosen[0])
            case ElicitationNumberPropertySchema():
                return float(chosen[0])
            case ElicitationStringPropertySchema():
                return ", ".join(chosen)
    except ValueError:
        return None
