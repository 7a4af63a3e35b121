"""The language of scripts: answers and actions of the model, and its failures.

A script is a list of turns, a turn is one word or a list of words, and a plain text is
short for `Say`:

    {
        "hello": "Hello there.",
        "write": [Call({"Write": {...}, "write": {...}}), "Done: {{tool_result}}"],
        "slow": [[Think("Hm."), "One moment ", Pause(2), "please."]],
    }

In a script file a word is an object with its name:
`{"do": "call", "tool": "Write", "input": {...}}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from atomic.base.errors import AtomicError

NAME = r"[A-Za-z0-9_.-]+"  # of a script, between @@ and @@
DEFAULT = "(unscripted)"
SIDE_TEXT = "A short title"
MODELS = ("scripted-1", "scripted-2")

Input: TypeAlias = Mapping[str, Any]


class ModelServerError(AtomicError):
    """A model server is used in a wrong way, or a call did not arrive."""


class ScriptNameError(ModelServerError):
    """A marker cannot contain the name of a script."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f'No marker can name this script: "{name}" (use letters, digits and _ . - only)')


class ScriptFileError(ModelServerError):
    """A script file cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f'Script file cannot be read: "{path}": {reason}')


class NotRunningError(ModelServerError):
    """The address of a server is not known before its start."""

    def __init__(self) -> None:
        super().__init__("The model server is not running (use it as `async with ModelServer(...) as server`)")


class NoSuchCallError(ModelServerError):
    """An expected call did not arrive; the message lists those that did."""

    def __init__(self, timeout: float, seen: list[str]) -> None:
        self.timeout = timeout
        self.seen = seen
        super().__init__(f"No such model call within {timeout:g} s; there were: {', '.join(seen) or 'none'}")


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


class _Word(msgspec.Struct, frozen=True, tag_field="do", tag=_tag, forbid_unknown_fields=True):
    """The base class of words; the tag is the name in a script file."""


class Say(_Word, frozen=True):
    """Answer with a text; `{{tool_result}}` and `{{model}}` are filled in."""

    text: str


class Think(_Word, frozen=True):
    """Show reasoning in the form of the protocol."""

    text: str


class Call(_Word, frozen=True):
    """Call a tool.

    Of several names, the first that the client offers is used, else the first; a
    mapping has an input for each name. Texts in the input may contain `{{tool_result}}`
    and `{{model}}`. Without an `id` each call gets a new one.
    """

    tool: str | Sequence[str] | Mapping[str, Input]
    input: Input = {}
    id: str = ""


class Pause(_Word, frozen=True):
    """Send nothing for some seconds; as the first word, before the first byte."""

    seconds: float


class Drip(_Word, frozen=True):
    """Answer slowly: the word with its number, `times` times, one every `every`
    seconds.
    """

    word: str = "word"
    times: int = 100
    every: float = 0.05


class Big(_Word, frozen=True):
    """Answer with a text of `size` bytes, in lines of 80."""

    size: int


class Fail(_Word, frozen=True):
    """Answer with an HTTP error.

    After some text of a stream, with the protocol's error event.

    Without a `type` it is the usual one of the status. With `times` the same request
    fails that often, and then gets the rest of the turn: `[Fail(529, times=2),
    "Hello."]`.
    """

    status: int
    type: str = ""
    message: str = "scripted error"
    headers: Mapping[str, str] = {}  # for example {"retry-after": "2"}
    times: int | None = None

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError(f"the status of Fail is 400 to 599, not {self.status}")


class Stall(_Word, frozen=True):
    """Send the beginning and keep the connection open until the client or server
    closes.
    """


class Cut(_Word, frozen=True):
    """Close the connection in the middle of the next event, or after that many bytes."""

    after: int | None = None

    def __post_init__(self) -> None:
        if self.after is not None and self.after < 0:
            raise ValueError(f"Cut(after=...) counts bytes from 0, not {self.after}")


class HalfCharacter(_Word, frozen=True):
    """Answer with a character whose first byte is sent separately.

    With `cut` the other bytes are never sent.
    """

    character: str = "€"
    cut: bool = False

    def __post_init__(self) -> None:
        if len(self.character) != 1 or len(self.character.encode()) < 2:
            raise ValueError(f"HalfCharacter needs one character of several bytes, not {self.character!r}")


class Tokens(_Word, frozen=True, kw_only=True):
    """The reported usage of the answer; anywhere in a turn.

    The kinds do not overlap in any protocol: the total read is `input + cached +
    written`.
    """

    input: int = 100
    output: int = 20
    cached: int = 0  # read from the cache
    written: int = 0  # to the cache; not reported by OpenAI's protocols


class Stop(_Word, frozen=True):
    """The reason of an incomplete answer; anywhere in a turn."""

    reason: Literal["refusal", "length"]


# A closed set: a player handles each.
Word: TypeAlias = Say | Think | Call | Pause | Drip | Big | Fail | Stall | Cut | HalfCharacter | Tokens | Stop
Turn: TypeAlias = Word | str | Sequence[Word | str]
Script: TypeAlias = Word | str | Sequence[Turn]


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a script file: the arguments of `ModelServer`."""

    scripts: dict[str, Script] = {}
    default: Turn = DEFAULT
    side_text: str = SIDE_TEXT
    toolless: tuple[str, ...] = ()
    models: tuple[str, ...] = MODELS


def turns_of(script: Script) -> tuple[tuple[Word, ...], ...]:
    """Return the turns of a script in their long form."""
    if isinstance(script, (str, _Word)):
        return (words_of(script),)
    return tuple(words_of(turn) for turn in script)


def words_of(turn: Turn) -> tuple[Word, ...]:
    """Return the words of a turn in their long form."""
    words = [turn] if isinstance(turn, (str, _Word)) else turn
    return tuple(Say(word) if isinstance(word, str) else word for word in words)
