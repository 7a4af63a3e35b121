"""Convert a form of an agent to questions, and their answers to the form's content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atomic.providers.acp.messages import Elicitation, FormChoice, FormField
from atomic.questions import Option, Question

_YES = "Yes"
_NO = "No"
_KINDS = frozenset({"string", "number", "integer", "boolean", "array"})


class Form:
    """A question for each field."""

    def __init__(self, message: str, fields: dict[str, FormField], required: Sequence[str]) -> None:
        self._fields = fields
        self._required = frozenset(required)
        self.questions = tuple(
            Question(
                _text(name, field, message if len(fields) == 1 else ""),
                options=[Option(choice.title, choice.description or "") for choice in _choices(field)],
                multi_select=field.type == "array",
                default=_default(field),
                header=field.title or name,
                id=name,
            )
            for name, field in fields.items()
        )

    def filled(self, answers: Sequence[Sequence[str]]) -> dict[str, Any] | None:
        """Return the content.

        None if an answer is missing or does not fit its field.
        """
        contents: dict[str, Any] = {}
        for (name, field), labels in zip(self._fields.items(), answers, strict=True):
            if labels:
                contents[name] = _value(field, labels)
        complete = contents.keys() >= self._required and None not in contents.values()
        return contents if complete else None


def read_form(request: Elicitation) -> Form | None:
    """Return the form; None without one, or if a field is of an unknown kind."""
    schema = request.requested_schema
    fields = {} if schema is None else schema.properties or {}
    if schema is None or not all(map(_is_known, fields.values())):
        return None
    return Form(request.message, fields, schema.required or ())


def _is_known(field: FormField) -> bool:
    items = field.items
    has_items = items is not None and (items.any_of is not None or items.enum is not None)
    return field.type in _KINDS and (has_items or field.type != "array")


def _text(name: str, field: FormField, message: str) -> str:
    """Combine message, title and description of a field without repetition."""
    parts: list[str] = []
    for text in (message, field.title, field.description):
        if text and not any(text.lower() in other.lower() for other in parts):
            parts.append(text)
    return "\n".join(parts) or name


def _plain(words: Sequence[str]) -> list[FormChoice]:
    return [FormChoice(word, word) for word in words]


def _choices(field: FormField) -> Sequence[FormChoice]:
    """Return the choices; none means free text."""
    match field.type:
        case "string":
            return field.one_of or _plain(field.enum or ())
        case "boolean":
            return _plain((_YES, _NO))
        case "array" if field.items is not None:
            return field.items.any_of or _plain(field.items.enum or ())
        case _:
            return ()


def _default(field: FormField) -> str | None:
    match field.type, field.default:
        case "string", str(word):
            return next((choice.title for choice in _choices(field) if choice.const == word), word)
        case "boolean", bool(yes):
            return _YES if yes else _NO
        case "number" | "integer", int(number) | float(number):
            return str(number)
        case _:
            return None


def _value(field: FormField, labels: Sequence[str]) -> Any:
    """Return the value of the labels, None if they do not fit the field."""
    values = {choice.title: choice.const for choice in _choices(field)}
    chosen = [values.get(label, label) for label in labels]
    try:
        match field.type:
            case "array":
                return chosen
            case "boolean":
                return {_YES: True, _NO: False}.get(chosen[0])
            case "integer":
                return int(chosen[0])
            case "number":
                return float(chosen[0])
            case _:
                return ", ".join(chosen)
    except ValueError:
        return None
