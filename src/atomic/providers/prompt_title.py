"""Parse the first line of a prompt, which may name its role and task. Pure."""

from __future__ import annotations

import re

_HEAD = re.compile(r"\[atomic((?: [a-z]+=[^\s\]]*)*)\]")


def role_and_task(prompt: str) -> tuple[str | None, str | None]:
    """Return the role and task in the first line: `[atomic role=worker task=3
    attempt=1]`.
    """
    words = _words(prompt)
    return words.get("role"), words.get("task")


def attempt_of(prompt: str) -> str | None:
    """Return the number of the attempt in the first line of a prompt, None without one."""
    return _words(prompt).get("attempt")


def _words(prompt: str) -> dict[str, str]:
    match = _HEAD.match(prompt.partition("\n")[0].strip())
    return dict(word.split("=", 1) for word in match[1].split()) if match else {}
