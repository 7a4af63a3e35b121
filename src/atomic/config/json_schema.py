"""The JSON Schema of a configuration file, for editors.

It is made from the same table that reads the file, so the two cannot differ in a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

import msgspec

from atomic.config import ralph_flags
from atomic.config.schema import SHAPE, Each, Key, Shape

# Without a lookahead, which Python 3.11 can crash at.
_DURATION = r"(\d+d(\d+h)?(\d+m)?(\d+s)?|\d+h(\d+m)?(\d+s)?|\d+m(\d+s)?|\d+s)"

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Duration = Annotated[str, msgspec.Meta(pattern=rf"^\s*{_DURATION}\s*$")]
_Limit = Annotated[str, msgspec.Meta(pattern=rf"^\s*({_DURATION}|0)\s*$")]

# The types of a value. Not as one union: msgspec 0.22 frees memory twice if the same
# pattern is in both parts of it.
_FORMS: Mapping[str, Any] = {
    "anything": Any,
    "text": _Text,
    "duration": _Duration,
    "limit": (_Limit, Literal[0]),
    "number": Annotated[float, msgspec.Meta(gt=0)],
    "count": Annotated[int, msgspec.Meta(gt=0)],
    "names": list[_Text],
    "one_or_more": (_Text, list[_Text]),
    "arguments": list[str],
    "command": Annotated[list[str], msgspec.Meta(min_length=1)],
    "variables": dict[str, str],
}


def config_schema() -> dict[str, Any]:
    """Return the schema of `config.toml`.

    A project's file may set fewer keys; `atomic config` reports the others.
    """
    schema = _schema_of(SHAPE)
    flags = {name: {"description": text} for name, text in ralph_flags.DESCRIPTIONS.items()}
    workflows = cast("dict[str, Any]", schema["properties"])["workflows"]
    workflows["properties"] = {ralph_flags.NAME: {"type": "object", "properties": flags}}
    return schema


def _schema_of(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Key):
        form = _FORMS[shape.form]
        if isinstance(form, tuple):
            schema: dict[str, Any] = {"anyOf": [msgspec.json.schema(each) for each in cast("tuple[Any, ...]", form)]}
        else:
            schema = msgspec.json.schema(form)
        if shape.form == "command":  # an argument may be empty, the program may not
            schema["prefixItems"] = [{"type": "string", "minLength": 1}]
        return {"description": shape.expected, **schema} if shape.expected else schema
    if isinstance(shape, Each):
        return {"type": "object", "additionalProperties": _schema_of(shape.shape)}
    properties = {name: _schema_of(inner) for name, inner in shape.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}
