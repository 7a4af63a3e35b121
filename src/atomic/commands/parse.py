"""Parse the typed text: a slash command, or agents with their tasks.

Pure; it knows no command.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

# A path (`/home/me/x`), a comment (`/* x */`) and `//x` are text. Any other name may
# belong to a file.
_CALL = re.compile(r"\s*/([^\s/*\x00-\x1f\x7f-\x9f][^\s/\x00-\x1f\x7f-\x9f]*)(?:\s+(.*))?", re.DOTALL)
_MENTION = re.compile(r"(?<!\S)@(\S+)")
_PART = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|\\.|[^ \t\r\n]""", re.DOTALL)
_WORD = re.compile(f"(?:{_PART.pattern})+", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')  # characters that a backslash escapes in double quotes
_PUNCTUATION = ",:;"


class CommandCall(msgspec.Struct, frozen=True):
    """A command's name in lower case and the text after it.

    `attached` was not typed.
    """

    name: str
    args: str = ""
    attached: str = ""

    @property
    def text(self) -> str:
        """Return the arguments with the attached text."""
        return "\n\n".join(part for part in (self.args, self.attached) if part)


class Word(msgspec.Struct, frozen=True):
    """A word without its quotes, and its position."""

    text: str
    start: int


class Mention(msgspec.Struct, frozen=True):
    """An agent and its task."""

    agent: str
    task: str


def parse(text: str) -> CommandCall | None:
    """Return the slash command of a text, or None."""
    match = _CALL.fullmatch(text.rstrip())
    return None if match is None else CommandCall(match[1].lower(), (match[2] or "").strip())


def split_words(text: str) -> list[Word]:
    """Split a text into words as a shell does.

    An unclosed quote is an ordinary character.
    """
    return [Word(_PART.sub(_unquoted, match[0]), match.start()) for match in _WORD.finditer(text)]


def _unquoted(part: re.Match[str]) -> str:
    whole = part[0]
    if len(whole) > 1 and whole[0] == whole[-1] == '"':
        return _ESCAPED.sub(r"\1", whole[1:-1])
    if len(whole) > 1 and whole[0] == whole[-1] == "'":
        return whole[1:-1]
    return whole[1:] if len(whole) > 1 else whole


def is_callable(name: str) -> bool:
    """Return whether a command of that name can be typed."""
    return parse(f"/{name}") == CommandCall(name.lower())


def parse_mentions(text: str, is_agent: Callable[[str], bool]) -> list[Mention]:
    """Return the agents of `@name text @other text` in order.

    None unless the text begins with one.

    A word after `@` that names no agent is text: a file, or part of an address. Agents
    side by side share the text that follows them.
    """
    found: list[tuple[re.Match[str], str]] = []
    for match in _MENTION.finditer(text):
        word = match[1]
        for name in (word, word.rstrip(_PUNCTUATION)):  # as in `@planner:`
            if name and is_agent(name):
                found.append((match, name))
                break
    if not found or text[: found[0][0].start()].strip():
        return []
    ends = [match.start() for match, _ in found[1:]] + [len(text)]
    mentions: list[Mention] = []
    task = ""
    for (match, name), end in zip(reversed(found), reversed(ends), strict=True):
        task = text[match.end() : end].strip() or task
        mentions.append(Mention(name, task))
    return mentions[::-1]
