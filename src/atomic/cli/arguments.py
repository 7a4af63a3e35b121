"""Read a command line: flags, words and a prompt. argparse would take a prompt's own dashes and words for its own."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from atomic.cli.errors import UsageError
from atomic.errors import closest
from atomic.flags import Flag


class Arguments:
    """A command line that was read. `prompt` is where the words of its prompt stand in the line."""

    def __init__(
        self, given: dict[str, list[str]], words: list[str], flags: Sequence[Flag] = (), prompt: range = range(0)
    ) -> None:
        self._given, self.words, self.flags, self.prompt = given, words, flags, prompt

    @property
    def flags_given(self) -> bool:
        return bool(self._given)

    def has(self, name: str) -> bool:
        return name in self._given

    def value(self, name: str) -> str | None:
        """What was given last."""
        return self.values(name)[-1] if self.has(name) else None

    def values(self, name: str) -> list[str]:
        """All that was given, in order."""
        return self._given.get(name, [])


def parse(
    words: Sequence[str], flags: Iterable[Flag], *, leading: int | None = None, line_starts: Container[int] = ()
) -> Arguments:
    """Read flags and words. `--` ends the flags, `-` is a word.

    `leading` is the number of words before the prompt; None if there is no prompt. Flags may stand among the leading
    words, before the prompt and after it, but not inside it. In a prompt a word with one dash that is no known flag is
    a word. `line_starts` are the positions of words that begin a line: a prompt takes everything from its second line
    on as it is.

    Raise UsageError, with the nearest flag if one is unknown.
    """
    flags = tuple(flags)
    by_name = {name: flag for flag in flags for name in flag.names}
    given: dict[str, list[str]] = {}
    before: list[str] = []
    prompt: list[str] = []
    first, end, trailing = 0, 0, ""
    rest = list(words)
    while rest:
        at = len(words) - len(rest)
        ends_flags = rest[0] == "--" or (bool(prompt) and at in line_starts)
        if not ends_flags and _is_flag_here(rest[0], by_name, in_prompt=bool(prompt)):
            name = _read_flag(rest, by_name, given, in_prompt=bool(prompt))
            if prompt:
                trailing = trailing or name
            continue
        if not ends_flags and (leading is None or len(before) < leading):
            before.append(rest.pop(0))
            continue
        if trailing:
            raise UsageError(_inside(trailing))
        if rest[0] == "--":
            rest.pop(0)
            at += 1
        taken = len(rest) if ends_flags else 1
        first = first if prompt else at
        prompt += rest[:taken]
        end = at + taken
        del rest[:taken]
    return Arguments(given, before + prompt, flags, range(first, end))


def _is_flag_here(word: str, known: Container[str], *, in_prompt: bool) -> bool:
    if not is_flag(word):
        return False
    if not in_prompt or word.partition("=")[0] in known:
        return True
    return word.startswith("--") and bool(word.strip("-"))


def _read_flag(rest: list[str], by_name: Mapping[str, Flag], given: dict[str, list[str]], *, in_prompt: bool) -> str:
    """Take a flag and its value off the line; return it as it was typed."""
    name, equals, value = rest.pop(0).partition("=")
    flag = by_name.get(name)
    if flag is None:
        quote = "; if it is part of the prompt, put the whole prompt in quotes or -- before it" if in_prompt else ""
        raise UsageError(f'Unknown flag: "{name}"{_meant(name, by_name)}{quote}')
    if not flag.value and equals:
        raise UsageError(f"{name} takes no value")
    if flag.value and not equals:
        value = _take(rest, flag)
    given.setdefault(flag.name, []).append(_checked(flag, value))
    return name


def _inside(flag: str) -> str:
    return f'"{flag}" is in the middle of the prompt: put flags before or after it, or the whole prompt in quotes'


def is_flag(word: str) -> bool:
    """A dash begins a flag, but not one with blanks in its name: `-p "- tidy up"` is a prompt."""
    return word.startswith("-") and word not in ("-", "--") and not any(map(str.isspace, word.partition("=")[0]))


def _take(rest: list[str], flag: Flag) -> str:
    if rest and rest[0] != "--" and not is_flag(rest[0]):
        return rest.pop(0)
    if flag.optional:
        return ""
    raise UsageError(f"{flag.name} needs a value: {flag.name} {flag.value}")


def _checked(flag: Flag, value: str) -> str:
    if flag.choices and value not in flag.choices:
        known = ", ".join(flag.choices)
        raise UsageError(f'{flag.name} cannot be "{value}"{_meant(value, flag.choices)}: it is one of {known}')
    return value


def _meant(word: str, known: Iterable[str]) -> str:
    nearest = closest(word, known)
    return f' (did you mean "{nearest}"?)' if nearest else ""
