"""Parse the arguments of command lines and slash commands: flags, then a prompt.

argparse is not used, because it would parse dashes inside a prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atomic.base.errors import AtomicError, ExitCode, did_you_mean
from atomic.base.flags import ConfigFlag, Flag


class UsageError(AtomicError):
    """The arguments are not a valid command."""

    exit_code = ExitCode.USAGE


class Arguments:
    """The flags and other words of a command; `is_marked` if `--` ended the flags."""

    def __init__(
        self,
        given: dict[str, list[str]],
        words: list[str],
        flags: Sequence[Flag] = (),
        *,
        is_marked: bool = False,
    ) -> None:
        self._given = given
        self.words = words
        self.flags = flags
        self.is_marked = is_marked
        self.line: list[str] = []  # the whole command line, beginning with its verb
        self.subject: object = None  # what a word refers to, if it was looked up for its flags
        self.workflow: tuple[str, str] | None = None  # the name and the description of a workflow with flags

    @property
    def flags_given(self) -> bool:
        return bool(self._given)

    def has(self, name: str) -> bool:
        return name in self._given

    def value(self, name: str) -> str | None:
        """Return the last value of a flag; None without the flag."""
        return self.values(name)[-1] if self.has(name) else None

    def values(self, name: str) -> list[str]:
        """Return all values of a flag, in order."""
        return self._given.get(name, [])


def parse(words: Sequence[str], flags: Iterable[Flag], *, mixed: bool = False, leading: int | None = None) -> Arguments:
    """Parse flags up to the first other word, or `mixed` with other words.

    `--` ends the flags, and `-` is a word. Flags may follow the first `leading` words;
    the next word begins the prompt. Raises UsageError with the nearest flag.
    """
    flags = tuple(flags)
    by_name = {name: flag for flag in flags for name in flag.names}
    given: dict[str, list[str]] = {}
    rest = list(words)
    others: list[str] = []
    while rest and rest[0] != "--" and (is_flag(rest[0]) or (mixed and (leading is None or len(others) < leading))):
        if not is_flag(rest[0]):
            others.append(rest.pop(0))
            continue
        name, equals, value = rest.pop(0).partition("=")
        flag = by_name.get(name)
        if flag is None:
            raise UsageError(f'Unknown flag: "{name}"{did_you_mean(name, by_name)}')
        if not flag.value and equals:
            raise UsageError(f"{name} takes no value")
        if flag.value and not equals:
            value = _take(rest, flag)
        given.setdefault(flag.name, []).append(_checked(flag, value))
    is_marked = rest[:1] == ["--"]
    if is_marked:
        rest.pop(0)
    return Arguments(given, others + rest, flags, is_marked=is_marked)


def is_flag(word: str) -> bool:
    """Return whether a word is a flag.

    With spaces in its name it is not: `-p "- tidy up"`.
    """
    return word.startswith("-") and word not in ("-", "--") and not any(map(str.isspace, word.partition("=")[0]))


def _take(rest: list[str], flag: Flag) -> str:
    if rest and rest[0] != "--" and not is_flag(rest[0]):
        return rest.pop(0)
    if flag.optional:
        return ""
    if rest and rest[0][1:2].isdigit():
        if isinstance(flag, ConfigFlag) and not flag.is_limit:
            raise UsageError(f"{flag.name} needs a value: write a negative one as {flag.name}={rest[0]}")
        raise UsageError(f'{flag.name} cannot be "{rest[0]}": a negative value is not allowed ({flag.usage})')
    raise UsageError(f"{flag.name} needs a value: {flag.name} {flag.value}")


def _checked(flag: Flag, value: str) -> str:
    if flag.choices and value not in flag.choices:
        known = ", ".join(flag.choices)
        raise UsageError(f'{flag.name} cannot be "{value}"{did_you_mean(value, flag.choices)}: it is one of {known}')
    return value
