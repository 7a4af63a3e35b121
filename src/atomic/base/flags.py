"""The flags of every run, and the flags that the configuration of a workflow adds.

Pure and quick to import: the command line, its help, shell completion and slash
commands use the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from atomic.base.errors import closest

TYPE_CHECKING = False  # typing itself would cost every start
if TYPE_CHECKING:
    from typing import Any

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


def flag_in_prompt(words: Iterable[str], flags: Iterable[Flag]) -> str:
    """Return a warning if a word of a prompt is a flag, else an empty text.

    All words after the first word of a prompt belong to the prompt, so the flag is not
    set.
    """
    names = {name for flag in flags for name in flag.names}
    for word in words:
        name = word.partition("=")[0]
        if name in names:
            return f"{name} is part of the prompt here and was not set: flags go before the prompt"
        if name.startswith("--") and (meant := closest(name, names)):
            return f"{name} is part of the prompt here (is it {meant}?): flags go before the prompt"
    return ""


HELP = Flag("-h", "--help", help="this text")
TRUST = Flag("--trust", value="HASH", help="for this command only: let this project's code run in its current state")
LINES = Flag("--json", help="for programs: one JSON object a line on standard output")
HOW = (
    Flag("-a", "--agent", value="[ROLE=]AGENT", help="claude, opencode, copilot, acp:NAME, replay:FILE; for one role"),
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
    TRUST,
    LINES,
)
RUN = (*HOW, Flag("--resume", value="ID", help="continue a run of this workflow, as atomic resume does"))
# Keys of a workflow's config do not become these flags.
_RESERVED = {name for flag in (*RUN, HELP) for name in flag.names}


class ConfigFlag(Flag):
    """A flag that sets a key of a workflow's config.

    The type of the default decides how it is read.
    """

    def __init__(self, name: str, key: str, default: Any, *, value: str, help: str) -> None:
        super().__init__(name, help=help, value=value)
        self.key = key
        self.default = default
        self.is_for_resume = True  # False: only a new run takes it

    @property
    def is_limit(self) -> bool:
        """Return whether it limits the iterations of a run; 0 then means no limit."""
        return _is_limit(self.key, self.default)


def config_flags(
    config: Mapping[str, Any], described: Mapping[str, str] | None = None, on_resume: Sequence[str] | None = None
) -> list[ConfigFlag]:
    """Return the flags for the keys of a config, except keys whose flag every run has.

    `on_resume` are the keys that a resume may change; None means all.
    """
    from atomic.base.terminal import one_line

    made: dict[str, ConfigFlag] = {}
    for key, default in config.items():
        if not _is_plain(key) or _plain(key) in _RESERVED:
            continue
        flag = _flag_of(key, default, one_line((described or {}).get(key, "")))
        if flag is not None and flag.name not in _RESERVED:
            flag.is_for_resume = on_resume is None or key in on_resume
            made.setdefault(flag.name, flag)
    return list(made.values())


def _is_plain(key: str) -> bool:
    letters = key.replace("_", "").replace("-", "")
    return key[:1].isalpha() and letters.isalnum() and key.isascii() and len(key) <= _LONGEST_KEY


def _plain(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _flag_of(key: str, default: Any, description: str) -> ConfigFlag | None:
    """Return the flag of a key with the author's description, or one of its value."""
    name = _plain(key)
    value = "TEXT"
    shown = (default or None) if description else default
    match default:
        case _ if _is_limit(key, default):
            value = "N"
            takes = "a whole number; 0: no limit"
        case False:
            value = ""
            shown = None
            takes = "switch it on"
        case True:
            name = f"--no-{name.removeprefix('--')}"
            value = ""
            shown = None
            takes = "switch it off"
        case int():
            value = "N"
            takes = "a whole number"
        case float():
            value = "NUMBER"
            takes = "a number"
        case list() | tuple():
            takes = "a text; repeatable"
        case str() | None:
            takes = "a text"
        case _:
            return None
    return ConfigFlag(name, key, default, value=value, help=_with_default(description or takes, shown))


def _is_limit(key: str, default: Any) -> bool:
    return key == "max_iterations" and (default is None or type(default) is int)


def _with_default(help: str, default: Any) -> str:
    if default is None or default == [] or default == ():
        return help
    import json

    from atomic.base.terminal import one_line
    from atomic.base.text import cut

    return f"{help}; default {cut(one_line(json.dumps(default, ensure_ascii=False)), _LONGEST_DEFAULT)}"
