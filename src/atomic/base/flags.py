"""The flags of every run, and the flags that the configuration of a workflow adds.

Pure and quick to import: the command line, its help, shell completion and slash
commands use the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from atomic.base.errors import closest

TYPE_CHECKING = False  # typing itself would cost every start
if TYPE_CHECKING:
    from typing import Any, Protocol

    class TakenParameter(Protocol):
        """A parameter of a workflow function, as its file has it."""

        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> str: ...
        @property
        def has_default(self) -> bool: ...
        @property
        def default(self) -> Any: ...
        @property
        def choices(self) -> Sequence[str]: ...
        @property
        def is_prompt(self) -> bool: ...


_LONGEST_DEFAULT = 60
_LONGEST_KEY = 64


class Flag:
    """A flag. With `value` it takes one; with `optional` only if the next word is not a
    flag.
    """

    def __init__(
        self, *names: str, help: str, value: str = "", choices: Sequence[str] = (), optional: bool = False
    ) -> None:
        self.names = names
        self.help = help
        self.value = value
        self.choices = choices
        self.optional = optional

    @property
    def name(self) -> str:
        return self.names[-1]

    @property
    def usage(self) -> str:
        """Return the flag for help and hints: `--model MODEL`."""
        return f"{self.name} {self.value}".strip()


def flag_in_prompt(words: Iterable[str], flags: Iterable[Flag]) -> tuple[str, str] | None:
    """Return the first word of a prompt that is a flag, and the flag that it means.

    They differ if the word is only similar to a flag. All words after the first word of
    a prompt belong to the prompt, so the flag is not set.
    """
    names = {name for flag in flags for name in flag.names}
    similar: tuple[str, str] | None = None
    for word in words:
        name = word.partition("=")[0]
        if name in names:
            return name, name
        is_similar = similar is None and name.startswith("--")
        if is_similar and (meant := closest(name, names)) and meant[:3] == name[:3]:
            similar = name, meant
    return similar


# The order is the one in which the default is looked for.
AGENT = "claude, opencode, copilot, codex, ... (default: the first usable), acp:NAME, replay:FILE"
HELP = Flag("-h", "--help", help="this text")
TRUST = Flag("--trust", value="HASH", help="for this command only: let this project's code run in its current state")
LINES = Flag("--json", help="for programs: one JSON object a line on standard output")
HOW = (
    Flag("-a", "--agent", value="[ROLE=]AGENT", help=AGENT),
    Flag("-m", "--model", value="[ROLE=]MODEL", help="one of the agent's models; for one role"),
    Flag("--max-cost", value="USD", help="pause at this cost; resumes count together"),
    Flag("--max-tokens", value="N", help="pause at this number of tokens"),
    Flag("--max-time", value="TIME", help="pause after this much working time: 90s, 30m, 6h"),
    Flag(
        "--turn-limit",
        value="TIME",
        help="interrupt a turn that takes longer (default 2h, planner and reviewer 30m; 0: never)",
    ),
    Flag("--idle-limit", value="TIME", help="interrupt a turn whose agent is silent for this long; 0: never"),
    Flag(
        "--on-limit",
        value="WHAT",
        choices=("wait", "stop", "switch"),
        help="when an agent's usage limit is reached: wait for its reset, stop, or switch to another agent",
    ),
    Flag("--record", value="FILE", help="write what the agents do to a file that replay:FILE plays"),
    Flag("--park", help="end the process while the run only sleeps or waits for a signal: atomic wake continues it"),
    TRUST,
    LINES,
    Flag("-q", "--quiet", help="print the result of the run alone"),
)
RUN = (*HOW, Flag("--resume", value="ID", help="continue a run of this workflow, as atomic resume does"))
EVERY = Flag(
    "--every",
    value="TIME",
    help="run nothing, and print the crontab line and the systemd timer for it: 15m, 1h, 6h, 1d, 1w",
)
# Keys of a workflow's config do not become these flags.
_RESERVED = {name for flag in (*RUN, EVERY, HELP) for name in flag.names}


class ConfigFlag(Flag):
    """A flag that sets a key of a workflow's config.

    `kind` says how it is read: "text", "int", "number", "flag", "texts" or "json".
    """

    def __init__(
        self, name: str, key: str, default: Any, *, kind: str, value: str, help: str, choices: Sequence[str] = ()
    ) -> None:
        super().__init__(name, help=help, value=value, choices=choices)
        self.key = key
        self.default = default
        self.kind = kind
        self.is_for_resume = True  # False: only a new run takes it

    @property
    def is_limit(self) -> bool:
        """Return whether it limits the iterations of a run; 0 then means no limit."""
        return self.kind == "limit"


def config_flags(
    config: Mapping[str, Any],
    described: Mapping[str, str] | None = None,
    on_resume: Sequence[str] | None = None,
    parameters: Sequence[TakenParameter] = (),
) -> list[ConfigFlag]:
    """Return the flags for the keys of a config and for the parameters of a function,
    except those whose flag every run has.

    `on_resume` are the keys that a resume may change; None means all. A description such
    as "FILE: read this file" begins with the word for the value.
    """
    from atomic.base.terminal import one_line

    made: dict[str, ConfigFlag] = {}
    known = {one.name: one for one in parameters}
    prompts = {one.name for one in parameters if one.is_prompt}
    for key in dict.fromkeys((*known, *config)):
        if key in prompts or not _is_plain(key) or _plain(key) in _RESERVED:
            continue
        parameter = known.get(key)
        description = one_line((described or {}).get(key, ""))
        if parameter is None:
            flag = _flag_of(key, config[key], description)
        else:
            flag = _flag_of_parameter(parameter, config.get(key, parameter.default), description)
        if flag is not None and flag.name not in _RESERVED:
            flag.is_for_resume = on_resume is None or key in on_resume
            made.setdefault(flag.name, flag)
    return list(made.values())


def _is_plain(key: str) -> bool:
    letters = key.replace("_", "").replace("-", "")
    return key[:1].isalpha() and letters.isalnum() and key.isascii() and len(key) <= _LONGEST_KEY


def _plain(key: str) -> str:
    return f"--{key.replace('_', '-')}"


# By kind: the word for the value, and what the flag takes.
_TAKES = {
    "limit": ("N", "a whole number; 0: no limit"),
    "flag": ("", "switch it on"),
    "int": ("N", "a whole number"),
    "number": ("NUMBER", "a number"),
    "texts": ("TEXT", "a text; repeatable"),
    "text": ("TEXT", "a text"),
    "json": ("JSON", "a value as JSON"),
}


def _flag_of(key: str, default: Any, description: str) -> ConfigFlag | None:
    """Return the flag of a key of a config; None if its default is of another type."""
    kind = _kind_of(key, default)
    return None if kind is None else _made(key, kind, default, description)


def _flag_of_parameter(parameter: TakenParameter, default: Any, description: str) -> ConfigFlag:
    made = _made(parameter.name, parameter.kind, default, description, parameter.choices)
    if default is None and not parameter.has_default:
        made.help += "; needed"
    return made


def _made(key: str, kind: str, default: Any, description: str, choices: Sequence[str] = ()) -> ConfigFlag:
    name = _plain(key)
    value, takes = _TAKES[kind]
    word, colon, rest = description.partition(": ")
    if colon and value and word.isupper() and word.isalpha():
        value = word
        description = rest
    shown = (default or None) if description and kind != "flag" else default
    if kind == "flag":
        shown = None
        if default is True:
            name = f"--no-{name.removeprefix('--')}"
            takes = "switch it off"
    elif kind == "text" and isinstance(default, str) and default[:-1].isdecimal() and default[-1] in "smh":
        value = "TIME"
        takes = "a time, such as 90s, 30m or 2h"
    if choices:
        takes = ", ".join(choices)
    help = _with_default(description or takes, shown)
    return ConfigFlag(name, key, default, kind=kind, value=value, help=help, choices=choices)


def _kind_of(key: str, default: Any) -> str | None:
    """Return how a flag is read by the default of its key."""
    if key == "max_iterations" and (default is None or type(default) is int):
        return "limit"
    match default:
        case bool():
            return "flag"
        case int():
            return "int"
        case float():
            return "number"
        case list() | tuple():
            return "texts"
        case str() | None:
            return "text"
        case _:
            return None


def _with_default(help: str, default: Any) -> str:
    if default is None or default == [] or default == ():
        return help
    import json

    from atomic.base.terminal import one_line
    from atomic.base.text import cut

    return f"{help}; default {cut(one_line(json.dumps(default, ensure_ascii=False)), _LONGEST_DEFAULT)}"
