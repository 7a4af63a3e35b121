"""Choose the turn of a script for a conversation, and adapt it to the client."""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from atomic.base.errors import did_you_mean
from atomic.testing.model_server.calls import Conversation, Named
from atomic.testing.model_server.script import (
    NAME,
    Call,
    Fail,
    Input,
    Say,
    ScriptFile,
    ScriptNameError,
    Think,
    Word,
    turns_of,
    words_of,
)


class Choice(msgspec.Struct, frozen=True):
    """The words to play and their script; a side text or the default has none."""

    script: str | None
    turn: int
    words: tuple[Word, ...]


class Playbook:
    """All scripts of a server."""

    def __init__(self, file: ScriptFile, named: Named | None = None) -> None:
        self._named = named
        for name in file.scripts:
            if not re.fullmatch(NAME, name):
                raise ScriptNameError(name)
        self._scripts = {name: turns_of(script) for name, script in file.scripts.items()}
        self._default = words_of(file.default)
        self._side = (Say(file.side_text),)
        self._toolless = frozenset(file.toolless)
        # For `Fail(times=...)`: how often the same conversation was sent.
        self._failures: Counter[tuple[str, int, int]] = Counter()

    def choose(self, conversation: Conversation) -> Choice:
        """Choose the turn.

        Select the tool that the client offers and fill in quoted texts.
        """
        choice = self._choose(conversation)
        words = self._after_failures(choice, conversation)
        return Choice(choice.script, choice.turn, tuple(_fitted(word, conversation) for word in words))

    def _choose(self, conversation: Conversation) -> Choice:
        name, turn = conversation.place(self._named)
        # Titles and summaries may quote a marker. Claude Code quotes a whole session for its title.
        is_title = conversation.user_text().startswith("<session>")
        if not conversation.tools and (is_title or name not in self._toolless):
            return Choice(None, 0, self._side)
        if name is None:
            return Choice(None, 0, self._default)
        turns = self._scripts.get(name)
        if turns is None:
            return Choice(None, 0, (Say(f'there is no script "{name}"{did_you_mean(name, self._scripts)}'),))
        return Choice(name, turn, turns[turn] if turn < len(turns) else (Say(f"(the script {name} is over)"),))

    def _after_failures(self, choice: Choice, conversation: Conversation) -> tuple[Word, ...]:
        """Leave out failures that were already played as often as scripted."""
        key = (choice.script or "", choice.turn, hash(conversation.messages))
        seen = self._failures[key]
        kept: list[Word] = []
        for word in choice.words:
            if isinstance(word, Fail) and word.times is not None:
                if seen >= word.times:
                    seen -= word.times
                    continue
                self._failures[key] += 1
            kept.append(word)
            if isinstance(word, Fail):
                break
        return tuple(kept)


def _fitted(word: Word, conversation: Conversation) -> Word:
    match word:
        case Say(text):
            return Say(_filled(text, conversation))
        case Think(text):
            return Think(_filled(text, conversation))
        case Call():
            return _offered(word, conversation)
        case _:
            return word


def _offered(call: Call, conversation: Conversation) -> Call:
    names = [call.tool] if isinstance(call.tool, str) else list(call.tool)
    name = next((name for name in names if name in conversation.tools), names[0])
    given: Input = call.tool[name] if isinstance(call.tool, Mapping) else call.input
    return Call(name, _filled(dict(given), conversation), call.id or f"call_{uuid.uuid4().hex}")


def _filled(value: Any, conversation: Conversation) -> Any:
    """Replace placeholders in all texts of a value."""
    if isinstance(value, str):
        if "{{" not in value:
            return value
        return value.replace("{{model}}", conversation.model).replace("{{tool_result}}", conversation.tool_result())
    if isinstance(value, dict):
        return {key: _filled(item, conversation) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_filled(item, conversation) for item in cast("list[Any]", value)]
    return value
