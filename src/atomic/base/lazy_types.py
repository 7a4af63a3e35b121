"""Name a type whose module is imported only when the type is looked at.

A module that imports a name only for type checkers, because the import would be slow or
circular, makes it available to `typing.get_type_hints` in this way:

    if TYPE_CHECKING:
        from pathlib import Path
    else:
        Path = deferred("pathlib", "Path")
"""

from __future__ import annotations

from typing import Any, ForwardRef


def deferred(module: str, name: str) -> Any:
    """Return a reference that `typing.get_type_hints` turns into the type itself."""
    return ForwardRef(f"__import__({module!r}, fromlist=[{name!r}]).{name}")
