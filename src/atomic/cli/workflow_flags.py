"""Read the flags that a workflow's `default_config` makes. Nothing of the workflow's file runs for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from atomic.base.arguments import Arguments, UsageError, is_flag, parse
from atomic.base.flags import ConfigFlag, config_flags
from atomic.cli.verbs import Verb

if TYPE_CHECKING:
    from atomic.workflows.definition import WorkflowDefinition

_LARGEST = 2**63  # what session.json can hold

Find = Callable[[str], "WorkflowDefinition | None"]
"""From a word of the command line to the workflow that it means."""


def config_of(arguments: Arguments) -> dict[str, Any]:
    """What the flags of a workflow say. Raises UsageError."""
    return {
        flag.key: _read(flag, arguments.values(flag.name))
        for flag in arguments.flags
        if isinstance(flag, ConfigFlag) and arguments.has(flag.name)
    }


def _read(flag: ConfigFlag, texts: Sequence[str]) -> Any:
    """What the key becomes, by the type of its default. Raises UsageError."""
    if flag.is_limit:
        return _limit(flag.name, texts)
    match flag.default:
        case bool():
            return not flag.default
        case int():
            return _whole(flag.name, texts)
        case float():
            return _number(flag.name, texts)
        case list() | tuple():
            return [*texts]
        case _:
            return _only(flag.name, texts)


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
        own = config_flags(definition.default_config, definition.config_descriptions, definition.resume_config)
        flags = (*verb.flags, *own)
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
