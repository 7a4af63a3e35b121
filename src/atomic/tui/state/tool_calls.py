"""Format a tool call: title, subject and full input, and shorten long output."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

HEAD = 8_000
TAIL = 8_000
_PATHS = ("file_path", "filePath", "path", "notebook_path", "file", "filename")
_COMMANDS = ("command", "cmd", "script")
_OTHERS = ("pattern", "query", "url", "description", "prompt", "skill", "name", "title")
_OLD = ("old_string", "oldString", "old_str", "oldText")
_NEW = ("new_string", "newString", "new_str", "newText")
_WHOLE = ("content", "file_text", "contents")
_PATCHES = ("patch", "patchText", "diff", "input")
_WIDE = 200  # characters of a detail
_MANY = 2_000  # lines to compare at most


class Card(NamedTuple):
    """The parts of a tool card."""

    title: str
    detail: str
    input: str


def card(name: str, input: Mapping[str, Any]) -> Card:
    """Format a tool call as a card."""
    diff = _diff(input)
    about = _about(input)
    if diff:
        lines = diff.splitlines()
        added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        about = f"{about}  +{added} -{removed}".strip()
    title = name[:1].upper() + name[1:]
    if name.startswith("mcp__"):
        title = " · ".join(part for part in name.split("__")[1:] if part) or name
    return Card(title, about, clip(diff or _body(input)))


def _about(input: Mapping[str, Any]) -> str:
    for keys in (_PATHS, _COMMANDS, _OTHERS):
        found = _find(input, keys)
        if found:
            lines = found.strip().splitlines() or [""]
            more = f" … +{len(lines) - 1} lines" if len(lines) > 1 else ""
            return lines[0][:_WIDE] + more
    return ""


def _find(input: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        value = input.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _diff(input: Mapping[str, Any]) -> str:
    """Return the file change that this call requests as a diff, or an empty string."""
    edits: object = input.get("edits")
    if isinstance(edits, list):
        parts = [_edit(part) for part in edits if isinstance(part, Mapping)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return "\n".join(part for part in parts if part)
    edit = _edit(input)
    if edit:
        return edit
    patch = _find(input, _PATCHES)
    if patch and any(line.startswith(("@@", "*** ", "--- ")) for line in patch.splitlines()):
        return patch
    whole = _find(input, _WHOLE)
    return "\n".join(f"+{line}" for line in whole.splitlines()) if whole and _find(input, _PATHS) else ""


def _edit(input: Mapping[str, Any]) -> str:
    old, new = (next((input[key] for key in keys if isinstance(input.get(key), str)), None) for keys in (_OLD, _NEW))
    if old is None or new is None:
        return ""
    before = old.splitlines()
    after = new.splitlines()
    if len(before) + len(after) > _MANY:  # comparing takes quadratic time
        return "\n".join([*(f"-{line}" for line in before), *(f"+{line}" for line in after)])
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))
    return "\n".join(line for line in lines[2:] if not line.startswith("@@")) if len(lines) > 2 else ""


def _body(input: Mapping[str, Any]) -> str:
    command = _find(input, _COMMANDS)
    if command:
        return f"$ {command}"
    if len(input) == 1:
        return _word(next(iter(input.values())))
    return "\n".join(f"{key}: {_word(value)}" for key, value in input.items())


def _word(value: object) -> str:
    if isinstance(value, str):
        return value
    import msgspec

    return msgspec.json.encode(value, enc_hook=str).decode()


@dataclass(slots=True)
class Clip:
    """An output that grows at its end: the beginning and the end are kept."""

    _head: str = ""
    _tail: str = ""
    _left_out: int = 0  # lines
    _is_cut: bool = False

    def add(self, text: str) -> None:
        """Append text."""
        room = HEAD - len(self._head)
        if room > 0:
            self._head += text[:room]
            text = text[room:]
        self._tail += text
        if len(self._tail) > 2 * TAIL:  # rarely, so that not every delta copies it
            self._cut()

    def text(self) -> str:
        """Return the text to show."""
        if len(self._tail) > TAIL:
            self._cut()
        if not self._is_cut:
            return self._head + self._tail
        lines = f"{self._left_out:,} lines" if self._left_out else "a part"
        return f"{self._head.rstrip()}\n… {lines} left out …\n{self._tail}"

    def _cut(self) -> None:
        at = len(self._tail) - TAIL
        border = self._tail.find("\n", at, at + 400) + 1 or at  # whole lines, unless they are very long
        self._left_out += self._tail.count("\n", 0, border)
        self._tail = self._tail[border:]
        self._is_cut = True


def clip(text: str) -> str:
    """Return the beginning and the end of a text."""
    if len(text) <= HEAD + TAIL:
        return text
    kept = Clip()
    kept.add(text)
    return kept.text()
