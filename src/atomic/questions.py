"""A question to the user, from a node or an agent.

A question can outlive the process that asked it, so it is plain data for the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import AtomicError


class Option(msgspec.Struct, frozen=True):
    """One answer to choose from. The label is the answer."""

    label: str
    description: str = ""


class _Text(msgspec.Struct, frozen=True):
    # A separate class, because msgspec makes all fields of a class keyword-only or
    # none.
    text: str


class Question(_Text, frozen=True, kw_only=True):
    """A text, options to choose from (without options: free text), and the default
    answer.

    With `returns` the answer is data of that type, or its JSON text. The code that asks
    gives a type; a reader of the record or the event has its JSON Schema.
    """

    options: tuple[Option, ...] = ()
    default: str | None = None
    header: str = ""
    multi_select: bool = False
    id: str = ""
    returns: Any = None

    if TYPE_CHECKING:
        # msgspec derives the real one from the fields. It would not show that labels
        # are accepted, too.
        def __init__(
            self,
            text: str,
            *,
            options: Sequence[Option | str] = (),
            default: str | None = None,
            header: str = "",
            multi_select: bool = False,
            id: str = "",
            returns: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Turn labels into options."""
        if isinstance(self.options, str):  # a str is a sequence of letters, which would become the options
            raise TypeError(f"the options of a question are a list, not the text {self.options!r}")
        options = tuple(Option(item) if isinstance(item, str) else item for item in self.options)
        msgspec.structs.force_setattr(self, "options", options)

    def described(self) -> Question:
        """Return the question as plain data: with the JSON Schema of `returns`.

        Raise AtomicError if `returns` is no type that has one.
        """
        if self.returns is None or isinstance(self.returns, dict):
            return self
        try:
            schema = msgspec.json.schema(self.returns)
        except (TypeError, NameError) as error:
            raise AtomicError(f"Question(returns={self.returns!r:.60}): {error}") from error
        return msgspec.structs.replace(self, returns=schema)


class AnswerError(AtomicError):
    """An answer does not fit the type of its question."""

    def __init__(self, question: Question, reason: str, path: str = "") -> None:
        self.question_id = question.id
        self.path = path
        self.reason = reason
        where = f" at {path}" if path else ""
        super().__init__(f'The answer to "{question.id}" does not fit{where}: {reason}')


def read_data(question: Question, answer: Any) -> Any:
    """Return an answer as plain data that fits the question's `returns`.

    A text is read as JSON, unless the type takes the text itself. Raise AnswerError.
    """
    from atomic.base.json_schema import Mismatch, mismatch, sketch  # few questions have a type

    schema = cast("dict[str, Any]", question.described().returns)
    is_text = isinstance(answer, str)
    found: Mismatch | None = None
    for data in _readings(answer):
        found = mismatch(data, schema)
        if found is not None:
            continue
        if not isinstance(question.returns, dict):
            typed(question, data)
        return data
    if found is None or (is_text and not found.path and not answer.lstrip().startswith(("{", "["))):
        raise AnswerError(question, f"it needs {sketch(schema)}, not {answer!r:.60}")
    raise AnswerError(question, found.reason, found.path)


def _readings(answer: Any) -> list[Any]:
    """Return what an answer may mean: of a text, first JSON with brackets, then itself, then other JSON."""
    if not isinstance(answer, str):
        try:
            return [msgspec.to_builtins(answer)]
        except TypeError:
            return []
    try:
        data = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return [answer]
    return [answer, data] if not isinstance(data, dict | list) else [data, answer, data]


def typed(question: Question, data: Any) -> Any:
    """Return plain data as the type that a question returns. Raise AnswerError."""
    try:
        return msgspec.convert(data, question.returns)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        raise AnswerError(question, reason, where.strip("`").removeprefix("$").removeprefix(".")) from error
