"""`atomic config`: print the settings in effect, and the file or variable that each
comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.redaction import Redactor
from atomic.base.terminal import one_line
from atomic.cli.streams import json_line, put, put_table, tell
from atomic.config import Layer, config_files, read_layers
from atomic.config.schema import SHAPE, Key

_VARIABLES = {"agent": "ATOMIC_AGENT", "model": "ATOMIC_MODEL"}


class SettingRow(msgspec.Struct, frozen=True):
    """A setting; `source` is user, project, environment, or default if it is not set."""

    key: str
    value: Any
    source: str
    path: str | None = None
    line: int | None = None
    variable: str | None = None


class FileRow(msgspec.Struct, frozen=True):
    """A configuration file, which may be missing."""

    level: str
    path: str
    exists: bool


def show_config(arguments: Arguments) -> int:
    """Print all settings with their origin, without secrets."""
    layers, warnings = read_layers()
    rows = _rows(layers)
    levels = zip(("user", "project"), config_files(), strict=True)
    files = [FileRow(level, str(path), path.is_file()) for level, path in levels if path is not None]
    if arguments.has("--json"):
        put(json_line({"files": files, "settings": rows, "warnings": warnings}))
        return ExitCode.DONE
    cells: list[tuple[str, str, str]] = []
    for row in rows:
        if row.source == "default":
            cells.append((row.key, "-", "not set"))
        else:
            origin = row.variable or f"{row.path}:{row.line}"
            cells.append((row.key, msgspec.json.encode(row.value).decode(), f"{row.source}, {origin}"))
    put_table(cells)
    for file in files:
        put(f"\n{file.level} file: {one_line(file.path)}{'' if file.exists else ' (does not exist)'}")
    put("\n")
    for warning in warnings:
        tell(f"warning: {warning}")
    return ExitCode.DONE


def _rows(layers: Sequence[Layer]) -> list[SettingRow]:
    """Return the fixed keys, set or not, followed by all others that are set."""
    found: dict[tuple[str, ...], SettingRow] = {}
    for name, shape in SHAPE.items():
        if isinstance(shape, Key):
            found[name,] = SettingRow(name, None, "default")
        elif name == "caps":
            for inner in cast("dict[str, Any]", shape):
                found[name, inner] = SettingRow(f"{name}.{inner}", None, "default")
    redactor = Redactor.of_environment()
    for layer in layers:
        for key, value in _leaves(layer.values):
            # A variable for an agent may be a secret key: its name decides, as in a
            # log.
            shown = redactor.data({key[-1]: value})[redactor.text(key[-1])]
            name = ".".join(key)
            if layer.file is None:
                found[key] = SettingRow(name, shown, layer.origin, variable=_VARIABLES[name])
            else:
                found[key] = SettingRow(name, shown, layer.origin, str(layer.file.path), layer.file.line_of(key))
    return list(found.values())


def _leaves(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), (*above, name))
        else:
            yield (*above, name), value
