"""The first line of a prompt, where it says what it is for. Pure."""

from __future__ import annotations

import re

_HEAD = re.compile(r"\[atomic((?: [a-z]+=[^\s\]]*)*)\]")


def role_and_task(prompt: str) -> tuple[str | None, str | None]:
    """What a prompt says of itself in its first line: `[atomic role=worker task=3 attempt=1]`."""
    words = _words(prompt)
    return words.get("role"), words.get("task")


def attempt_of(prompt: str) -> str | None:
    """Return the number of the attempt that a prompt names in its first line, None if it names none."""
    return _words(prompt).get("attempt")


def _words(prompt: str) -> dict[str, str]:
    match = _HEAD.match(prompt.partition("\n")[0].strip())
    return dict(word.split("=", 1) for word in match[1].split()) if match else {}
