"""Read the flags that a workflow's `default_config` defines.

No code of the workflow's file runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from atomic.base.arguments import Arguments, UsageError, is_flag, parse
from atomic.base.flags import ConfigFlag, config_flags
from atomic.cli.verbs import Verb

if TYPE_CHECKING:
    from atomic.sessions.store import Session
    from atomic.workflows.definition import WorkflowDefinition

_LARGEST = 2**63  # what session.json can hold


class Found(NamedTuple):
    """The workflow that a word of the command line means, and the session if the word
    is its id.
    """

    definition: WorkflowDefinition
    session: Session | None = None


Find = Callable[[str], Found | None]
"""Finds the workflow that a word means."""


def config_of(arguments: Arguments) -> dict[str, Any]:
    """Return the values of a workflow's flags. Raises UsageError."""
    return {
        flag.key: _read(flag, arguments.values(flag.name))
        for flag in arguments.flags
        if isinstance(flag, ConfigFlag) and arguments.has(flag.name)
    }


def _read(flag: ConfigFlag, texts: Sequence[str]) -> Any:
    """Return the value of a key, read by the type of its default. Raises UsageError."""
    default: object = flag.default
    kind = int if flag.is_limit else type(default)
    if kind is bool:
        return not flag.default
    if kind in (list, tuple):
        return [*texts]
    if len(texts) > 1:
        raise UsageError(f"{flag.name} was given {len(texts)} times: it takes one value")
    text = texts[0]
    if kind is int:
        number = _whole(flag.name, text)
        if flag.is_limit and number < 0:
            raise UsageError(f'{flag.name} cannot be "{number}": give a whole number, 0 or more')
        return number
    return _number(flag.name, text) if kind is float else text


def _whole(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = _LARGEST
    if not -_LARGEST <= number < _LARGEST:
        raise UsageError(f'{name} cannot be "{text}": give a whole number')
    return number


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f'{name} cannot be "{text}": give a number')
    return number


def read_line(verb: Verb, words: Sequence[str]) -> Arguments:
    """Read the command line of a verb that names a workflow.

    Flags may precede the name. Raises UsageError.
    """
    try:
        arguments = parse(words, verb.flags, mixed=True, leading=verb.leading)
    except UsageError:
        with_its_flags = _with_its_flags(verb, words)
        if with_its_flags is None:
            raise
        return with_its_flags
    if arguments.has("--help") and arguments.words:  # the help shows the workflow's flags, too
        return _with_its_flags(verb, words) or arguments
    return arguments


def _with_its_flags(verb: Verb, words: Sequence[str]) -> Arguments | None:
    """Parse the command line with the flags of its workflow.

    None if it names no workflow.

    Which word is the name depends on the flags before it, and these on the name. So try
    each word, and take the first one that turns out to be the name. Raises UsageError.
    """
    assert verb.workflow is not None
    find = verb.workflow(words)
    failure: UsageError | None = None
    before = words[: words.index("--")] if "--" in words else words
    for word in dict.fromkeys(word for word in before if not is_flag(word)):
        found = find(word)
        if found is None:
            continue
        definition = found.definition
        own = config_flags(definition.default_config, definition.config_descriptions, definition.resume_config)
        try:
            arguments = parse(words, (*verb.flags, *own), mixed=True, leading=verb.leading)
        except UsageError as error:
            failure = failure or error
            continue
        if arguments.words[:1] == [word]:
            arguments.subject = found.session
            return arguments
    if failure is not None:
        raise failure
    return None
