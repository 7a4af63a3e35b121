"""The keys of a configuration file: their values, and which of them a project may set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from atomic.config.ralph_flags import DEFAULTS


class Key:
    """A key with a value; `read` raises ValueError if the value is not `expected`.

    `form` names the type of the value in `json_schema`, which explains it to editors.
    """

    def __init__(self, expected: str, read: Callable[[Any], Any], form: str = "anything") -> None:
        self.expected = expected
        self.read = read
        self.form = form


class Each:
    """A table whose keys are chosen by the user."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


Shape: TypeAlias = "Key | Each | Mapping[str, Shape]"


def read_duration(value: Any) -> float:
    """Return the seconds of a duration such as "90s", "30m", "6h" or "1h30m".

    Raise ValueError.
    """
    import re

    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", _text(value).strip(), re.ASCII)
    if match is None:
        raise ValueError
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
    return _number(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def read_limit(value: Any) -> float:
    """Return the seconds of a duration, 0 for no limit. Raise ValueError."""
    is_zero = str(value).strip() in ("0", "0s", "0m", "0h") and not isinstance(value, bool)
    return 0.0 if is_zero else read_duration(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _arguments(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise ValueError
    return cast("list[str]", value)  # an empty argument is valid


def _names(value: Any) -> list[str]:
    return [_text(item) for item in _arguments(value)]


def _command(value: Any) -> list[str]:
    words = _arguments(value)
    if not words or not words[0]:
        raise ValueError
    return words


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError
    variables = cast("dict[str, Any]", value)
    if not all(name and "=" not in name and isinstance(item, str) for name, item in variables.items()):
        raise ValueError
    return variables


def _number(value: Any) -> float:
    # 0 could mean "no cap" or "nothing at all", and nan cannot be compared.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError
    return int(_number(value))


def _one_or_more(value: Any) -> list[str]:
    return [_text(value)] if isinstance(value, str) else _names(value)


_ANYTHING = Key("", lambda value: value)


SHAPE: Mapping[str, Shape] = {
    "agent": Key('the name of an agent, such as "claude"', _text, "text"),
    "model": Key('the name of a model, such as "opus"', _text, "text"),
    "theme": Key('the name of a theme, such as "dark"', _text, "text"),
    "editor": Key('a command, such as "vim"', _text, "text"),
    "keys": Each(Key('a key such as "ctrl+t", or a list of them', _one_or_more, "one_or_more")),
    "caps": {
        "max_cost": Key("a number of dollars above 0", _number, "number"),
        "max_tokens": Key("a whole number above 0", _count, "count"),
        "max_time": Key('a time such as "90s", "30m" or "6h"', read_duration, "duration"),
        "turn_limit": Key('a time such as "90s" or "2h", or 0 for no limit', read_limit, "limit"),
        "idle_limit": Key('a time such as "90s" or "20m", or 0 for no limit', read_limit, "limit"),
        "grace": Key('a time such as "30s" or "2m"', read_duration, "duration"),
    },
    "providers": {
        name: {
            "path": Key("the path of a program", _text, "text"),
            "args": Key("a list of texts", _arguments, "arguments"),
            "env": Key("a table of variables", _variables, "variables"),
        }
        for name in ("claude", "opencode", "copilot")
    },
    "acp": Each({"command": Key('a list, such as ["gemini", "--acp"]', _command, "command")}),
    "env": {"pass": Key("a list of names of variables", _names, "names")},
    "checks": {"env": Key("a list of names of variables", _names, "names")},
    "workspace": {
        "copy": Key("a list of names of files and folders", _names, "names"),
        "max_size": Key("a whole number of bytes above 0", _count, "count"),
        "setup": Key('a command, such as "npm ci"', _text, "text"),
    },
    "workflows": Each(Each(_ANYTHING)),
}

# The numbers of Ralph that a project may lower, with the defaults.
RALPH_NUMBERS: Mapping[str, int] = {
    key: DEFAULTS[key] for key in ("max_iterations", "workers", "reviewers", "review_rounds")
}

# Everything that a project may set, within limits of `loader`. Only the user may set
# other keys.
BY_PROJECT: Mapping[str, Shape] = {
    "agent": SHAPE["agent"],
    "theme": SHAPE["theme"],
    "caps": SHAPE["caps"],
    "workflows": Each(
        {
            "verify": Key('a command such as "make test", or a list of them', _one_or_more, "one_or_more"),
            **dict.fromkeys(RALPH_NUMBERS, _ANYTHING),
        }
    ),
}

# Defaults that a project may not exceed if the user sets nothing. Planners have the
# shorter turns.
CAP_DEFAULTS: Mapping[str, float] = {"turn_limit": 1800.0, "grace": 120.0}

# Parts of unknown keys that a project would use for things that it may never decide.
NEVER_BY_PROJECT = ("trust", "permission", "policy", "api_key", "apikey", "token", "secret", "endpoint", "url")
