"""Read the flags that a workflow's `default_config` defines.

No code of the workflow's file runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from atomic.base.arguments import Arguments, UsageError, is_flag, parse
from atomic.base.flags import ConfigFlag
from atomic.base.terminal import one_line
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
    """Return the value of a flag. Raises UsageError."""
    if flag.kind == "flag":
        return not flag.default
    if flag.kind == "texts":
        return [*texts]
    if len(texts) > 1:
        raise UsageError(f"{flag.name} was given {len(texts)} times: it takes one value")
    text = texts[0]
    match flag.kind:
        case "int" | "limit":
            number = _whole(flag.name, text)
            if flag.is_limit and number < 0:
                raise UsageError(f'{flag.name} cannot be "{number}": give a whole number, 0 or more')
            return number
        case "number":
            return _number(flag.name, text)
        case "json":
            return _json(flag.name, text)
        case _:
            return text


def _json(name: str, text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{name} cannot be \"{text}\": give JSON, such as '[1, 2]' ({error})") from None


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

    Flags may precede the name. Raises UsageError; for the help of an unknown workflow
    WorkflowNotFoundError or WorkflowFileError.
    """
    try:
        arguments = parse(words, verb.flags, mixed=True, leading=verb.leading)
    except UsageError:
        with_its_flags = _with_its_flags(verb, words) or _of_last_run(verb, words)
        if with_its_flags is None:
            raise
        return with_its_flags
    if arguments.has("--help") and arguments.words:  # the help shows the workflow's flags, too
        with_its_flags = _with_its_flags(verb, words)
        if with_its_flags is None and not verb.resumes:
            _require_workflow(arguments.words[0])
        return with_its_flags or arguments
    return arguments


def _require_workflow(word: str) -> None:
    """Raise WorkflowNotFoundError or WorkflowFileError unless a word means a workflow."""
    from atomic.wiring import Project

    Project().workflows.typed(word)


def _of_last_run(verb: Verb, words: Sequence[str]) -> Arguments | None:
    """Parse `atomic resume` without an id, with the flags of the run that it continues."""
    if not verb.resumes or verb.needed:
        return None
    from atomic.cli.last_run import find_last_run

    last = find_last_run()
    return None if last is None else _with_its_flags(verb, [last.id, *words])


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
        try:
            arguments = parse(words, (*verb.flags, *definition.flags), mixed=True, leading=verb.leading)
        except UsageError as error:
            failure = failure or error
            continue
        if arguments.words[:1] == [word]:
            arguments.subject = found.session
            arguments.workflow = one_line(word), one_line(definition.description)
            return arguments
    if failure is not None:
        raise failure
    return None
