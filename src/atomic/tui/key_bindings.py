"""The key bindings in one table.

`keys.NAME = ["..."]` in the config changes an action's keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from atomic.base.errors import did_you_mean


class Where(StrEnum):
    """Where a key is active. A place further up takes precedence."""

    POPUP = "popup"  # the list below the prompt is open
    TRANSCRIPT = "transcript"  # the transcript is read block by block
    EMPTY = "empty"  # the prompt is empty
    PROMPT = "prompt"
    ANYWHERE = "anywhere"


class KeyAction(NamedTuple):
    """An action: its default keys and its description in the list of keys."""

    name: str
    keys: tuple[str, ...]
    description: str
    where: Where


def _actions(where: Where, *rows: tuple[str, str, str]) -> tuple[KeyAction, ...]:
    return tuple(KeyAction(name, tuple(keys.split()), description, where) for name, keys, description in rows)


TABLE: tuple[KeyAction, ...] = (
    *_actions(
        Where.ANYWHERE,
        ("stop", "escape", "Close what is open, else stop the turn or pause the workflow"),
        ("interrupt", "ctrl+c", "The same; then clear the input; then leave (twice within a second: at once)"),
        ("palette", "ctrl+p", "All commands"),
        ("tasks", "ctrl+t", "Tasks"),
        ("agents", "f3", "Agents"),
        ("graph", "f5", "The workflow's graph"),
        ("questions", "f6", "Questions that wait"),
        ("transcript", "ctrl+o", "Read the transcript block by block"),
        ("copy_answer", "ctrl+y", "Copy the last answer"),
        ("page_up", "pageup", "Scroll up"),
        ("page_down", "pagedown", "Scroll down"),
        ("scroll_start", "ctrl+home", "Scroll to the beginning"),
        ("scroll_end", "ctrl+end", "Scroll to the end, and follow it"),
        ("help", "f1", "Help"),
        ("model", "f2", "Choose a model"),
        ("theme", "f4", "Choose a theme"),
        ("repaint", "ctrl+l", "Paint everything anew"),
        ("suspend", "ctrl+z", "Back to the shell; `fg` returns"),
    ),
    *_actions(
        Where.EMPTY,
        ("keys", "question_mark", "List the keys"),
        ("leave", "ctrl+d", "Leave"),
    ),
    *_actions(
        Where.PROMPT,
        ("send", "enter", "Send; while the agent is busy: queue"),
        ("newline", "ctrl+j alt+enter shift+enter", "A new line (also \\ and Enter)"),
        ("complete", "tab", "Complete"),
        ("history_back", "up", "The text before; a queued one comes back to be edited"),
        ("history_forward", "down", "The next text"),
        ("history_search", "ctrl+r", "Search what was sent before"),
        ("editor", "ctrl+g", "Edit in your editor, with pastes in full"),
        ("line_start", "ctrl+a home", "To the start of the line"),
        ("line_end", "ctrl+e end", "To the end of the line"),
        ("word_left", "alt+b ctrl+left alt+left", "A word to the left"),
        ("word_right", "alt+f ctrl+right alt+right", "A word to the right"),
        ("delete_to_start", "ctrl+u", "Delete to the start of the line"),
        ("delete_to_end", "ctrl+k", "Delete to the end of the line"),
        ("delete_word", "ctrl+w alt+backspace ctrl+backspace", "Delete the word to the left"),
        ("delete_word_right", "alt+d ctrl+delete", "Delete the word to the right"),
        ("undo", "ctrl+underscore ctrl+shift+z", "Undo"),
        ("redo", "alt+underscore", "Redo"),
    ),
    *_actions(
        Where.POPUP,
        ("popup_previous", "up ctrl+p", "The entry above"),
        ("popup_next", "down ctrl+n", "The entry below"),
        ("popup_complete", "tab", "Take the entry"),
        ("popup_run", "enter", "Run the entry; complete it if it needs an argument"),
    ),
    *_actions(
        Where.TRANSCRIPT,
        ("block_next", "j down", "The next block"),
        ("block_previous", "k up", "The block before"),
        ("block_unfold", "enter space", "Unfold or fold"),
        ("block_copy", "y", "Copy the block, or what is selected"),
        ("block_first", "g home", "The first block"),
        ("block_last", "G end", "The last block"),
        ("block_leave", "q i", "Back to the prompt"),
    ),
)

_BY_NAME = {action.name: action for action in TABLE}
_MODIFIERS = ("alt", "ctrl", "hyper", "meta", "shift", "super")
_NAMES = frozenset(
    (
        *("escape", "enter", "tab", "space", "backspace", "delete", "insert", "home", "end", "pageup", "pagedown"),
        *("up", "down", "left", "right"),
        *(f"f{number}" for number in range(1, 25)),
    )
)
_SPELLINGS = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "page_up": "pageup",
    "page_down": "pagedown",
    "control": "ctrl",
    "option": "alt",
    "cmd": "super",
}
_SIGNS = {
    "?": "question_mark",
    "/": "slash",
    "\\": "backslash",
    "@": "at",
    "_": "underscore",
    ".": "full_stop",
    ",": "comma",
    ";": "semicolon",
    ":": "colon",
    "!": "exclamation_mark",
    "=": "equals_sign",
    "<": "less_than_sign",
    ">": "greater_than_sign",
    "[": "left_square_bracket",
    "]": "right_square_bracket",
    "'": "apostrophe",
    "#": "number_sign",
}
_SIGN_NAMES = {name: sign for sign, name in _SIGNS.items()}
_TYPING = (Where.EMPTY, Where.PROMPT, Where.ANYWHERE)  # places that accept typed letters and share their keys


class Keymap:
    """Keys and actions after remapping."""

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = dict(keys)
        self._actions: dict[Where, dict[str, str]] = {where: {} for where in Where}
        for name, own in self._keys.items():
            for key in own:
                self._actions[_BY_NAME[name].where].setdefault(key, name)

    def action(self, key: str, *places: Where) -> str | None:
        """Return the action of a key in the first of these places that has one, or
        None.
        """
        return next((name for place in places if (name := self._actions[place].get(key))), None)

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of an action."""
        return self._keys[name]

    def shown(self, name: str) -> str:
        """Return the first key of an action as `Ctrl+T`, or an empty string if it has
        none.
        """
        return next((shown(key) for key in self._keys[name]), "")

    def rows(self) -> list[tuple[Where, str, str]]:
        """Return all bindings to display: place, keys, description."""
        return [
            (action.where, ", ".join(map(shown, self._keys[action.name])), action.description)
            for action in TABLE
            if self._keys[action.name]
        ]


def keymap(remapped: Mapping[str, Sequence[str]] | None = None) -> tuple[Keymap, tuple[str, ...]]:
    """Return the keymap with the remapped keys of the config, and warnings about them."""
    warnings: list[str] = []
    own: dict[str, tuple[str, ...]] = {}
    for name, keys in (remapped or {}).items():
        if name not in _BY_NAME:
            warnings.append(f"keys.{name}: there is no such action{did_you_mean(name, _BY_NAME)}")
        elif (read := _read(name, keys, warnings)) is not None:
            own[name] = read
    taken: dict[tuple[str, Where], str] = {}
    result: dict[str, tuple[str, ...]] = {}
    # Remapped actions take precedence.
    for name in (*own, *(action.name for action in TABLE if action.name not in own)):
        action = _BY_NAME[name]
        result[name] = _free(action, own.get(name, action.keys), taken, warnings)
    return Keymap(result), tuple(warnings)


def _read(name: str, keys: Sequence[str], warnings: list[str]) -> tuple[str, ...] | None:
    """Return the valid keys of a remapped action, or None if none of them is valid."""
    read: list[str] = []
    for text in keys:
        key = normal(text)
        if key is None:
            warnings.append(f'keys.{name}: "{text}" is no key (write it like ctrl+t, alt+enter or f3)')
        elif _BY_NAME[name].where in _TYPING[1:] and is_typed(key):
            warnings.append(f'keys.{name}: "{text}" could not be typed any more (take it with ctrl or alt)')
        else:
            read.append(key)
    return tuple(read) if read or not keys else None


def _free(
    action: KeyAction, keys: tuple[str, ...], taken: dict[tuple[str, Where], str], warnings: list[str]
) -> tuple[str, ...]:
    """Return the keys that no other action in the same place has taken."""
    group = Where.ANYWHERE if action.where in _TYPING else action.where
    free: list[str] = []
    for key in keys:
        owner = taken.setdefault((key, group), action.name)
        if owner == action.name:
            free.append(key)
        else:
            warnings.append(f"keys.{owner}: {shown(key)} is the key of {action.name} too; {owner} has it")
    return tuple(free)


def normal(text: str) -> str | None:
    """Return Textual's name of a key as a user writes it, or None if it is not a key."""
    text = text.strip()
    *modifiers, last = [text] if len(text) == 1 else re.split(r"[+-](?=.)", text)
    held = [_SPELLINGS.get(word.strip().lower(), word.strip().lower()) for word in modifiers]
    if any(word not in _MODIFIERS for word in held):
        return None
    name = _key_name(last.strip() or last, bool(held))
    return None if name is None else "+".join((*sorted(set(held)), name))


def _key_name(text: str, is_held: bool) -> str | None:
    if len(text) == 1:
        if text.isalnum():
            return text.lower() if is_held else text
        return _SIGNS.get(text)
    lower = text.lower()
    name = _SPELLINGS.get(lower, lower)
    return name if name in _NAMES or name in _SIGN_NAMES else None


def is_typed(key: str) -> bool:
    """Return whether a key types a character."""
    modifiers, _, last = key.rpartition("+")
    return modifiers in ("", "shift") and (len(last) == 1 or last in _SIGN_NAMES or last == "space")


def shown(key: str) -> str:
    """Return a key as users write it: `Ctrl+T`."""
    *modifiers, last = key.split("+")
    names = {"escape": "Esc", "pageup": "PageUp", "pagedown": "PageDown", "up": "↑", "down": "↓"}
    if len(last) == 1:
        name = last.upper() if modifiers else last
    else:
        name = _SIGN_NAMES.get(last) or names.get(last) or last.capitalize()
    return "+".join((*(word.capitalize() for word in modifiers), name))
