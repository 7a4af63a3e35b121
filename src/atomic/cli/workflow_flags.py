"""The keys of a workflow's `default_config` as flags of its run. Nothing of the workflow's file runs for it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atomic.cli.arguments import Arguments, Flag, is_flag, parse
from atomic.cli.errors import UsageError
from atomic.cli.verbs import RESERVED, Verb
from atomic.terminal import one_line

if TYPE_CHECKING:
    from atomic.workflows.definition import WorkflowDefinition

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LARGEST = 2**63  # what session.json can hold
_LONGEST_DEFAULT = 60

Find = Callable[[str], "WorkflowDefinition | None"]
"""From a word of the command line to the workflow that it means."""


class ConfigFlag(Flag):
    """A flag that sets a key of a workflow's config; the type of the key's default says how."""

    def __init__(self, name: str, key: str, default: Any, *, value: str, help: str, read: _Read) -> None:
        super().__init__(name, help=_described(help, default), value=value)
        self.key, self._read, self._default = key, read, default

    def described(self, words: str) -> ConfigFlag:
        """The same with the author's words for what it does."""
        if words:
            self.help = _described(one_line(words), self._default or None)
        return self

    def read(self, texts: Sequence[str]) -> Any:
        """What the key becomes. Raises UsageError."""
        return self._read(self.name, texts)


_Read = Callable[[str, Sequence[str]], Any]


def config_flags(config: Mapping[str, Any], described: Mapping[str, str] | None = None) -> list[ConfigFlag]:
    """The flags that keys make; a key whose flag every run has already makes none."""
    taken = {name for flag in RESERVED for name in flag.names}
    made: dict[str, ConfigFlag] = {}
    for key, default in config.items():
        plain = f"--{key.replace('_', '-')}"
        flag = _flag_of(plain, key, default) if _KEY.fullmatch(key) and plain not in taken else None
        if flag is not None and flag.name not in taken:
            made.setdefault(flag.name, flag.described((described or {}).get(key, "")))
    return list(made.values())


def config_of(arguments: Arguments) -> dict[str, Any]:
    """What the flags of a workflow say. Raises UsageError."""
    return {
        flag.key: flag.read(arguments.values(flag.name))
        for flag in arguments.flags
        if isinstance(flag, ConfigFlag) and arguments.has(flag.name)
    }


def _flag_of(name: str, key: str, default: Any) -> ConfigFlag | None:
    if key == "max_iterations" and (default is None or type(default) is int):
        return ConfigFlag(name, key, default, value="N", help="a whole number; 0: no limit", read=_limit)
    match default:
        case False:
            return ConfigFlag(name, key, None, value="", help="switch it on", read=_on)
        case True:
            off = f"--no-{name.removeprefix('--')}"
            return ConfigFlag(off, key, None, value="", help="switch it off", read=_off)
        case int():
            return ConfigFlag(name, key, default, value="N", help="a whole number", read=_whole)
        case float():
            return ConfigFlag(name, key, default, value="NUMBER", help="a number", read=_number)
        case list() | tuple():
            return ConfigFlag(name, key, default, value="TEXT", help="a text, as often as you like", read=_texts)
        case str() | None:
            return ConfigFlag(name, key, default, value="TEXT", help="a text", read=_only)
        case _:
            return None


def _described(help: str, default: Any) -> str:
    if default is None or default == [] or default == ():
        return help
    shown = one_line(json.dumps(default, ensure_ascii=False))
    return f"{help}; default {shown[:_LONGEST_DEFAULT]}{'…' if len(shown) > _LONGEST_DEFAULT else ''}"


def _on(name: str, texts: Sequence[str]) -> bool:
    return True


def _off(name: str, texts: Sequence[str]) -> bool:
    return False


def _texts(name: str, texts: Sequence[str]) -> list[str]:
    return [*texts]


def _only(name: str, texts: Sequence[str]) -> str:
    if len(texts) > 1:
        raise UsageError(f"{name} was given {len(texts)} times: it takes one value")
    return texts[0]


def _whole(name: str, texts: Sequence[str]) -> int:
    text = _only(name, texts)
    try:
        number = int(text)
    except ValueError:
        number = _LARGEST
    if not -_LARGEST <= number < _LARGEST:
        raise UsageError(f'{name} cannot be "{text}": give a whole number')
    return number


def _limit(name: str, texts: Sequence[str]) -> int:
    number = _whole(name, texts)
    if number < 0:
        raise UsageError(f'{name} cannot be "{number}": give a whole number, 0 or more')
    return number


def _number(name: str, texts: Sequence[str]) -> float:
    text = _only(name, texts)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f'{name} cannot be "{text}": give a number')
    return number


# a slash command ---------------------------------------------------------------------------------------------------


def read_typed(verb: Verb, definition: WorkflowDefinition, text: str) -> tuple[Arguments, str]:
    """The flags before the prompt of a slash command, and the prompt as it was typed. Raises UsageError."""
    from atomic.commands.parse import split_words

    words = split_words(text)
    flags = (*verb.flags, *config_flags(definition.default_config, definition.config_descriptions))
    arguments = parse([word.text for word in words], flags)
    prompt = words[len(words) - len(arguments.words) :]
    return arguments, text[prompt[0].start :] if prompt else ""


# a command line ----------------------------------------------------------------------------------------------------


def read_line(verb: Verb, words: Sequence[str]) -> Arguments:
    """The command line of a verb that names a workflow; its flags may stand before the name. Raises UsageError."""
    try:
        arguments = parse(words, verb.flags, mixed=True, leading=verb.leading)
    except UsageError as error:
        return _with_its_flags(verb, words) or _refused(error)
    if arguments.has("--help") and arguments.words:  # which also tells the workflow's flags
        return _with_its_flags(verb, words) or arguments
    return arguments


def _refused(error: UsageError) -> Arguments:
    raise error


def _with_its_flags(verb: Verb, words: Sequence[str]) -> Arguments | None:
    """As read with the flags of the workflow that it names; None if it names none.

    Which word is the name depends on the flags before it, and they on the name: the first word that is it in the end.
    """
    assert verb.workflow is not None
    find, failure = verb.workflow(words), None
    for word, definition in _named(words, find):
        flags = (*verb.flags, *config_flags(definition.default_config, definition.config_descriptions))
        try:
            arguments = parse(words, flags, mixed=True, leading=verb.leading)
        except UsageError as error:
            failure = failure or error
            continue
        if arguments.words[:1] == [word]:
            return arguments
    return None if failure is None else _refused(failure)


def _named(words: Sequence[str], find: Find) -> Iterator[tuple[str, WorkflowDefinition]]:
    before = words[: words.index("--")] if "--" in words else words
    for word in dict.fromkeys(word for word in before if not is_flag(word)):
        if (definition := find(word)) is not None:
            yield word, definition
