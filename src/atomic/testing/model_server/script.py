"""The words of a script: what the model says and does, and how its answer goes wrong.

A script is a list of turns, a turn is one word or a list of words, and a plain text is short for `Say`:

    {
        "hello": "Hello there.",
        "write": [Call({"Write": {...}, "write": {...}}), "Done: {{tool_result}}"],
        "slow": [[Think("Hm."), "One moment ", Pause(2), "please."]],
    }

In a script file a word is an object that names itself: `{"do": "call", "tool": "Write", "input": {...}}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

NAME = r"[A-Za-z0-9_.-]+"  # of a script, between @@ and @@
DEFAULT = "(unscripted)"
SIDE_TEXT = "A short title"
MODELS = ("scripted-1", "scripted-2")

Input: TypeAlias = Mapping[str, Any]


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


class _Word(msgspec.Struct, frozen=True, tag_field="do", tag=_tag, forbid_unknown_fields=True):
    """What all words share: their name in a script file."""


class Say(_Word, frozen=True):
    """Answer with a text. `{{tool_result}}` and `{{model}}` become what the client sent."""

    text: str


class Think(_Word, frozen=True):
    """Show reasoning, as the protocol shows it."""

    text: str


class Call(_Word, frozen=True):
    """Call a tool.

    Of several names the first that the client offers is taken, else the first; a mapping brings an input for each
    name. Texts in the input may hold `{{tool_result}}` and `{{model}}`. Without an `id` each call gets a new one.
    """

    tool: str | Sequence[str] | Mapping[str, Input]
    input: Input = {}
    id: str = ""


class Pause(_Word, frozen=True):
    """Send nothing for some seconds. As the first word it comes before the first byte of the answer."""

    seconds: float


class Drip(_Word, frozen=True):
    """Answer slowly: the word with its number, `times` times, one every `every` seconds."""

    word: str = "word"
    times: int = 100
    every: float = 0.05


class Big(_Word, frozen=True):
    """Answer with a text of `size` bytes, in lines of 80."""

    size: int


class Fail(_Word, frozen=True):
    """Answer with an HTTP error; after some text of a stream, with the protocol's error event.

    Without a `type` it is the one that belongs to the status. With `times` the same request fails that often, and
    then gets the rest of the turn: `[Fail(529, times=2), "Hello."]`.
    """

    status: int
    type: str = ""
    message: str = "scripted error"
    headers: Mapping[str, str] = {}  # such as {"retry-after": "2"}
    times: int | None = None

    def __post_init__(self) -> None:
        if not 400 <= self.status <= 599:
            raise ValueError(f"the status of Fail is 400 to 599, not {self.status}")


class Stall(_Word, frozen=True):
    """Send the beginning, then nothing more, and do not close: until the client hangs up or the server stops."""


class Cut(_Word, frozen=True):
    """Close the connection in the middle of the next event, or after some bytes more of the body, if it has them."""

    after: int | None = None

    def __post_init__(self) -> None:
        if self.after is not None and self.after < 0:
            raise ValueError(f"Cut(after=...) counts bytes from 0, not {self.after}")


class HalfCharacter(_Word, frozen=True):
    """Answer with a character whose first byte comes alone; with `cut` the others never come."""

    character: str = "€"
    cut: bool = False

    def __post_init__(self) -> None:
        if len(self.character) != 1 or len(self.character.encode()) < 2:
            raise ValueError(f"HalfCharacter needs one character of several bytes, not {self.character!r}")


class Tokens(_Word, frozen=True, kw_only=True):
    """What the answer is said to have cost; it may stand anywhere in a turn.

    The kinds do not overlap, whatever the protocol: all that was read is `input + cached + written`.
    """

    input: int = 100
    output: int = 20
    cached: int = 0  # read from the cache
    written: int = 0  # to the cache; OpenAI's protocols cannot tell


class Stop(_Word, frozen=True):
    """Why the answer ends, if not because it is complete; it may stand anywhere in a turn."""

    reason: Literal["refusal", "length"]


Word: TypeAlias = (
    Say | Think | Call | Pause | Drip | Big | Fail | Stall | Cut | HalfCharacter | Tokens | Stop
)  # a closed set: a player handles each
Turn: TypeAlias = Word | str | Sequence[Word | str]
Script: TypeAlias = Word | str | Sequence[Turn]


class ScriptFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a script file holds: the arguments of `ModelServer`."""

    scripts: dict[str, Script] = {}
    default: Turn = DEFAULT
    side_text: str = SIDE_TEXT
    toolless: tuple[str, ...] = ()
    models: tuple[str, ...] = MODELS


def turns_of(script: Script) -> tuple[tuple[Word, ...], ...]:
    """Give the turns of a script in their long form."""
    if isinstance(script, (str, _Word)):
        return (words_of(script),)
    return tuple(words_of(turn) for turn in script)


def words_of(turn: Turn) -> tuple[Word, ...]:
    """Give the words of a turn in their long form."""
    words = [turn] if isinstance(turn, (str, _Word)) else turn
    return tuple(Say(word) if isinstance(word, str) else word for word in words)
