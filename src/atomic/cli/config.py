"""`atomic config`: which settings hold, and which file or variable each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.redaction import Redactor
from atomic.base.terminal import one_line
from atomic.base.text import table
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.config import config_files
from atomic.config.loader import Layer, read_layers
from atomic.config.schema import SHAPE, Key

_VARIABLES = {"agent": "ATOMIC_AGENT", "model": "ATOMIC_MODEL"}


class SettingRow(msgspec.Struct, frozen=True):
    """A setting; `source` is user, project, environment, or default for one that nobody has set."""

    key: str
    value: Any
    source: str
    path: str | None = None
    line: int | None = None
    variable: str | None = None


class FileRow(msgspec.Struct, frozen=True):
    """A file that is read, if it is there."""

    level: str
    path: str
    exists: bool


def show_config(arguments: Arguments) -> int:
    """Print all settings with their origin; what was ignored is told. Nothing secret is printed."""
    as_json = arguments.has("--json")
    layers, warnings = read_layers()
    rows, files = _rows(layers), _files()
    if as_json:
        put(json_line({"files": files, "settings": rows, "warnings": warnings}))
        return ExitCode.DONE
    put("".join(f"{line}\n" for line in table(map(_cells, rows), screen_width())))
    put("".join(f"\n{file.level} file: {one_line(file.path)}{'' if file.exists else ' (not there)'}" for file in files))
    put("\n")
    for warning in warnings:
        tell(f"warning: {warning}")
    return ExitCode.DONE


def _rows(layers: Sequence[Layer]) -> list[SettingRow]:
    """The fixed keys first, set or not, then what else is set."""
    found = {key: SettingRow(".".join(key), None, "default") for key in _fixed_keys()}
    redactor = Redactor.of_environment()
    for layer in layers:
        for key, value in _leaves(layer.values):
            found[key] = _row(key, _without_secrets(redactor, key, value), layer)
    return list(found.values())


def _row(key: tuple[str, ...], value: Any, layer: Layer) -> SettingRow:
    name = ".".join(key)
    if layer.file is None:
        return SettingRow(name, value, layer.origin, variable=_VARIABLES[name])
    return SettingRow(name, value, layer.origin, str(layer.file.path), layer.file.line_of(key))


def _fixed_keys() -> Iterator[tuple[str, ...]]:
    for name, shape in SHAPE.items():
        if isinstance(shape, Key):
            yield (name,)
        elif name == "caps":
            yield from ((name, inner) for inner in cast("dict[str, Any]", shape))


def _leaves(values: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value), (*above, name))
        else:
            yield (*above, name), value


def _without_secrets(redactor: Redactor, key: tuple[str, ...], value: Any) -> Any:
    """A variable that is set for an agent may be its key: its name decides, as in a log."""
    return redactor.data({key[-1]: value})[redactor.text(key[-1])]


def _files() -> list[FileRow]:
    levels = zip(("user", "project"), config_files(), strict=True)
    return [FileRow(level, str(path), path.is_file()) for level, path in levels if path is not None]


def _cells(row: SettingRow) -> Sequence[str]:
    if row.source == "default":
        return one_line(row.key), "-", "not set"
    where = row.variable if row.variable else f"{row.path}:{row.line}"
    return one_line(row.key), one_line(msgspec.json.encode(row.value).decode()), one_line(f"{row.source}, {where}")
