"""What a client asked, in one shape for all protocols, and where in a script it is.

The place is read from the conversation itself: a marker `@@name@@` in the newest user text that has one names the
script, and the number of the assistant's steps since then is the turn. Nothing is remembered between requests, so
parallel sub-agents, retries and sessions that are resumed in another process cannot disturb each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from atomic.testing.model_server.script import NAME

Named = Callable[[str], "str | None"]
"""From a user's text without a marker to the name of its script."""

_MARKER = re.compile(f"@@({NAME})@@")
# Claude Code puts its own notes into the user's messages; they may quote older prompts.
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class Protocol(StrEnum):
    """How a client talks to a model."""

    ANTHROPIC = "anthropic"  # POST /v1/messages
    OPENAI_CHAT = "openai-chat"  # POST /v1/chat/completions
    OPENAI_RESPONSES = "openai-responses"  # POST /v1/responses


class Message(msgspec.Struct, frozen=True):
    """One step of a conversation, by the user (and the tools) or by the assistant."""

    is_assistant: bool
    text: str = ""
    tool_result: str = ""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer."""

    protocol: Protocol
    model: str
    stream: bool
    system: str
    tools: tuple[str, ...]
    messages: tuple[Message, ...]

    def user_text(self) -> str:
        """Give the newest text of the user, without the notes that the agent put into it."""
        texts = (_without_reminders(message.text) for message in reversed(self.messages) if not message.is_assistant)
        return next((text.strip() for text in texts if text.strip()), "")

    def tool_result(self) -> str:
        """Give what the tools said since the assistant's last step."""
        results: list[str] = []
        for message in reversed(self.messages):
            if message.is_assistant:
                break
            results.append(message.tool_result)
        return "\n".join(result for result in reversed(results) if result)

    def place(self, named: Named | None = None) -> tuple[str | None, int]:
        """Give the script that is asked for, if any, and the turn in it."""
        for position in range(len(self.messages) - 1, -1, -1):
            message = self.messages[position]
            name = None if message.is_assistant else _script_of(_without_reminders(message.text).strip(), named)
            if name is not None:
                return name, _steps(self.messages[position:])
        return None, 0


def join(texts: Iterable[str | None]) -> str:
    """Put the texts of a message together, one a line."""
    return "\n".join(text for text in texts if text)


def _script_of(text: str, named: Named | None) -> str | None:
    """What the text's last marker says; without one, what the server was told about such texts."""
    names = _MARKER.findall(text)
    if names:
        return names[-1]
    return named(text) if named is not None and text else None


def _without_reminders(text: str) -> str:
    return _REMINDER.sub("", text)


def _steps(messages: Iterable[Message]) -> int:
    """Count the assistant's steps; text and calls that follow each other are one."""
    steps, before = 0, False
    for message in messages:
        steps += message.is_assistant and not before
        before = message.is_assistant
    return steps
