"""Data of any shape, as agents send it."""

from __future__ import annotations

from typing import Any, cast


def as_object(data: Any) -> dict[str, Any]:
    """The object; an empty one if it is something else."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def word_in(data: Any, *path: str) -> str:
    """The text at the end of a path through objects; nothing if there is none."""
    for key in path:
        data = as_object(data).get(key)
    return data if isinstance(data, str) else ""
