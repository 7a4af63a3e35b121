"""Read the configuration files, take known and allowed keys, and merge them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import did_you_mean
from atomic.config.known_agents import AGENT_NAMES
from atomic.config.paths import config_files, is_ours
from atomic.config.ralph_flags import DEFAULTS, NAME
from atomic.config.schema import BY_PROJECT, CAP_DEFAULTS, NEVER_BY_PROJECT, RALPH_NUMBERS, SHAPE, Each, Key, Shape
from atomic.config.settings import ConfigError, Settings

if TYPE_CHECKING:
    from atomic.config.files import ConfigFile

Table = dict[str, Any]


class Layer:
    """The settings of one origin: the user's file, the project's file, or the
    environment.
    """

    def __init__(self, origin: str, values: Table, file: ConfigFile | None = None) -> None:
        self.origin = origin
        self.values = values
        self.file = file


def load_settings(project: Path | None = None, home: Path | None = None) -> Settings:
    """Return the settings for a project, by default that of the current folder.

    Raises ConfigError with file, line and reason. Ignored keys are in `warnings`.
    """
    layers, warnings = read_layers(project, home)
    settings: Table = {}
    for layer in layers:
        _merge(settings, layer.values)
    return msgspec.convert({**settings, "warnings": warnings}, Settings)


def read_layers(project: Path | None = None, home: Path | None = None) -> tuple[list[Layer], list[str]]:
    """Return the layers, the strongest last, and warnings of ignored keys.

    Raise ConfigError.
    """
    user_file, project_file = config_files(project, home)
    layers: list[Layer] = []
    warnings: list[str] = []
    user: Table = {}
    file = _read(user_file)
    if file is not None:
        user = _Reader(file, warnings, by_project=False).read()
        _resolve_programs(user, user_file.parent)
        layers.append(Layer("user", user, file))
    if project_file is not None and _is_foreign(project_file):
        warnings.append(f"{project_file} is not read: it, or its folder, belongs to another user")
    elif project_file is not None:
        file = _read(project_file)
        if file is not None:
            layers.append(Layer("project", _Reader(file, warnings, by_project=True).read_within(user), file))
    chosen = {"agent": os.environ.get("ATOMIC_AGENT"), "model": os.environ.get("ATOMIC_MODEL")}
    return [*layers, Layer("environment", {name: value for name, value in chosen.items() if value})], warnings


def _height(name: str, cap: float) -> float:
    """Return a cap for comparison: 0 is the highest where it means "no limit"."""
    return math.inf if cap == 0 and name in ("turn_limit", "idle_limit") else cap


def _is_foreign(file: Path) -> bool:
    """Return whether another user has written a project's file, or could."""
    try:
        return not all(is_ours(os.stat(path)) for path in (file, file.parent, file.parents[1]))
    except OSError:  # it does not exist
        return False


def _read(path: Path) -> ConfigFile | None:
    if not os.path.isfile(path):  # a pipe or a device would block
        return None
    from atomic.config.files import read_file  # with tomllib: most starts have no file to read

    return read_file(path)


_MAX_WARNINGS = 20  # of one file
_RALPH_TYPES = {int: "a whole number", bool: "true or false", list: "a command or a list of commands"}


class _Reader:
    """Takes the valid keys of one file that the file may set."""

    def __init__(self, file: ConfigFile, warnings: list[str], *, by_project: bool) -> None:
        self._file = file
        self._warnings = warnings
        self._by_project = by_project
        self._ignored = 0

    def read(self) -> Table:
        """Return the settings of the user's file. Raise ConfigError."""
        taken = self._table(self._file.data, SHAPE, (), SHAPE)
        self._warn_of_ralph(taken.get("workflows", {}))
        self._warn_of_the_rest()
        return taken

    def read_within(self, user: Table) -> Table:
        """Return the settings of a project's file, limited by the user's.

        Raise ConfigError.
        """
        taken = self._table(self._file.data, SHAPE, (), BY_PROJECT)
        self._limit_agent(taken, user)
        self._limit_caps(taken, user)
        if "workflows" in taken:
            taken["workflows"] = self._limit_workflows(taken["workflows"], user.get("workflows", {}))
        self._warn_of_the_rest()
        return taken

    def _limit_agent(self, taken: Table, user: Table) -> None:
        """Remove an agent that the user does not have, such as a recording of the
        project.
        """
        name = taken.get("agent")
        own = [f"acp:{acp}" for acp in user.get("acp", {})]
        if name is not None and name not in (*AGENT_NAMES, *own):
            del taken["agent"]
            known = ", ".join(AGENT_NAMES)
            self._warn(("agent",), f"is ignored: a project may name only {known} or an acp: agent that you have set")

    def _limit_caps(self, taken: Table, user: Table) -> None:
        """Remove caps that are higher than the user's."""
        caps: dict[str, float] = taken.get("caps", {})
        limits: dict[str, float] = {**CAP_DEFAULTS, **user.get("caps", {})}
        for name in sorted(limits.keys() & caps.keys()):
            if _height(name, caps[name]) > _height(name, limits[name]):
                del caps[name]
                self._warn(("caps", name), "is ignored: a project may not set it higher than you do")

    def _limit_workflows(self, tables: Mapping[str, Table], users: Mapping[str, Table]) -> Table:
        """Return the project's tables: its checks follow the user's, its numbers may
        only be lower.

        Names of workflows have no case, so the tables get the names of the user's
        tables.
        """
        limited: dict[str, Table] = {}
        for written, table in tables.items():
            same = [name for name in users if name.casefold() == written.casefold()]
            name = same[-1] if same else written.casefold()
            own = {key: value for one in same for key, value in users[one].items()}
            target = limited.setdefault(name, {})
            for key, value in table.items():
                default = RALPH_NUMBERS.get(key) if name.casefold() == "ralph" else None
                before = target.get(key, own.get(key, default))
                if key == "verify":
                    target[key] = list(dict.fromkeys([*_as_list(before), *value]))
                elif _lowers(key, value, before):
                    target[key] = value
                else:
                    self._warn(("workflows", written, key), "is ignored: a project may only lower it, and not to 0")
        return {name: table for name, table in limited.items() if table}

    def _table(
        self, data: Table, shape: Mapping[str, Shape] | Each, above: tuple[str, ...], allowed: Shape | None
    ) -> Table:
        taken: Table = {}
        for name, value in data.items():
            path = (*above, name)
            inner = _below(shape, name)
            taking = _below(allowed, name)
            if inner is None:
                self._warn_of_unknown(path, cast("Mapping[str, Shape]", shape))
            elif not isinstance(inner, Key):
                if not isinstance(value, dict):
                    raise self._wrong(path, "a table", value)
                taken[name] = self._table(cast("Table", value), inner, path, taking)
            elif isinstance(taking, Key):
                taken[name] = self._value(path, taking, value)
            else:
                self._warn_of_forbidden(path)
        return self._check_acp(taken, above)

    def _check_acp(self, taken: Table, path: tuple[str, ...]) -> Table:
        """Require the command of each ACP agent; a project cannot set one."""
        if path == ("acp",):
            for name in [name for name, agent in taken.items() if "command" not in agent]:
                if not self._by_project:
                    raise self._wrong((*path, name), 'a table with a "command"', taken[name])
                del taken[name]
        return taken

    def _value(self, path: tuple[str, ...], key: Key, value: Any) -> Any:
        try:
            return key.read(value)
        except ValueError:
            raise self._wrong(path, key.expected, value) from None

    def _wrong(self, path: tuple[str, ...], expected: str, value: Any) -> ConfigError:
        reason = f'"{".".join(path)}" must be {expected}, not {_shown(value)}'
        return ConfigError(self._file.path, self._file.line_of(path), reason, key=".".join(path))

    def _warn_of_unknown(self, path: tuple[str, ...], known: Mapping[str, Shape]) -> None:
        if self._by_project and any(word in path[-1].casefold() for word in NEVER_BY_PROJECT):
            self._warn_of_forbidden(path)
            return
        self._warn(path, f"is ignored: there is no such key{_hint(path, known)}")

    def _warn_of_ralph(self, tables: Mapping[str, Table]) -> None:
        """Warn of keys that the built-in Ralph does not have, and of values of another
        type.

        The user may have another workflow of that name.
        """
        for written, table in tables.items():
            if written.casefold() != NAME:
                continue
            for key, value in table.items():
                path = ("workflows", written, key)
                if key not in DEFAULTS:
                    hint = _hint(path, DEFAULTS)
                    self._warn(path, f"has no effect on the built-in ralph: no such key{hint}")
                elif not _is_like(value, DEFAULTS[key]):
                    expected = _RALPH_TYPES[type(DEFAULTS[key])]
                    self._warn(path, f"must be {expected} for the built-in ralph, not {_shown(value)}")

    def _warn_of_forbidden(self, path: tuple[str, ...]) -> None:
        self._warn(path, "is ignored: a project may not set it (your own configuration may)")

    def _warn(self, path: tuple[str, ...], reason: str) -> None:
        self._ignored += 1
        if self._ignored <= _MAX_WARNINGS:
            self._warnings.append(f'{self._file.path}:{self._file.line_of(path)}: "{".".join(path)}" {reason}')

    def _warn_of_the_rest(self) -> None:
        if self._ignored > _MAX_WARNINGS:
            self._warnings.append(f"{self._file.path}: {self._ignored - _MAX_WARNINGS} more keys are ignored")


def _hint(path: tuple[str, ...], known: Iterable[str]) -> str:
    *folders, name = path
    prefix = "".join(f"{folder}." for folder in folders)
    return did_you_mean(name, known, otherwise=f"known here: {', '.join(known)}", prefix=prefix)


def _below(shape: Shape | None, name: str) -> Shape | None:
    if isinstance(shape, Each):
        return shape.shape
    return shape.get(name) if isinstance(shape, Mapping) else None


def _is_like(value: Any, default: Any) -> bool:
    """Return whether a value has the type of a default.

    Words are checked where they are used, and one command needs no list.
    """
    if isinstance(default, list):
        return all(isinstance(one, str) for one in _as_list(value))
    return isinstance(default, str) or type(value) is type(default)


def _as_list(commands: Any) -> list[Any]:
    """Return the user's checks, which may be one command.

    Errors are reported where they are used.
    """
    if commands is None:
        return []
    return cast("list[Any]", commands) if isinstance(commands, list) else [commands]


def _lowers(key: str, value: Any, before: Any) -> bool:
    """Return whether a project's number is at most the user's.

    0 is refused: it lifts a limit or skips reviews.
    """
    numbers = [number for number in (value, before) if isinstance(number, int) and not isinstance(number, bool)]
    if len(numbers) < 2 or value < 1:
        return False
    return value <= before or (key == "max_iterations" and before == 0)


def _shown(value: Any) -> str:
    text = str(value)
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, bool):
        text = text.lower()
    return text if len(text) <= 60 else f"{text[:60]}…"


def _resolve_programs(settings: Table, folder: Path) -> None:
    """Make paths of programs absolute, relative to the file.

    The current folder may be a stranger's.
    """
    for provider in cast("dict[str, Table]", settings.get("providers", {})).values():
        if "path" in provider:
            provider["path"] = str(folder / Path(provider["path"]).expanduser())


def _merge(below: Table, above: Table) -> None:
    """Merge one table into another.

    Inner tables are copied, because a later merge may change them.
    """
    for name, value in above.items():
        if isinstance(value, dict):
            inner = below[name] = {**below[name]} if isinstance(below.get(name), dict) else {}
            _merge(inner, cast("Table", value))
        else:
            below[name] = value
