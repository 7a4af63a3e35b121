"""Requests to the server: conversations of all protocols in one form, and their state.

The position in a script is read from the conversation itself: a marker `@@name@@` in
the newest user text that has one names the script, and the number of the assistant's
steps after it is the turn. The server keeps no state between requests, so parallel
sub-agents, retries and resumed sessions cannot disturb each other.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from atomic.testing.model_server.script import NAME, NoSuchCallError

_log = logging.getLogger(__name__)
Named = Callable[[str], "str | None"]
"""Maps a user's text without a marker to the name of a script."""

_MARKER = re.compile(f"@@({NAME})@@")
# Claude Code adds its own notes to the user's messages; they may quote older prompts.
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class Protocol(StrEnum):
    """The protocol between a client and the model."""

    ANTHROPIC = "anthropic"  # POST /v1/messages
    GEMINI = "gemini"  # POST /v1beta/models/MODEL:streamGenerateContent, :generateContent
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
        """Return the newest text of the user, without notes of the agent."""
        texts = (_without_reminders(message.text) for message in reversed(self.messages) if not message.is_assistant)
        return next((text.strip() for text in texts if text.strip()), "")

    def tool_result(self) -> str:
        """Return the results of tools since the assistant's last step."""
        results: list[str] = []
        for message in reversed(self.messages):
            if message.is_assistant:
                break
            results.append(message.tool_result)
        return "\n".join(result for result in reversed(results) if result)

    def place(self, named: Named | None = None) -> tuple[str | None, int]:
        """Return the script that the conversation names, if any, and the turn in it."""
        for position in range(len(self.messages) - 1, -1, -1):
            message = self.messages[position]
            name = None if message.is_assistant else _script_of(_without_reminders(message.text).strip(), named)
            if name is not None:
                return name, _steps(self.messages[position:])
        return None, 0


def join(texts: Iterable[str | None]) -> str:
    """Join the texts of a message, one per line."""
    return "\n".join(text for text in texts if text)


def _script_of(text: str, named: Named | None) -> str | None:
    """Return the script of the last marker in a text; without one, ask `named`."""
    names = _MARKER.findall(text)
    if names:
        return names[-1]
    return named(text) if named is not None and text else None


def _without_reminders(text: str) -> str:
    return _REMINDER.sub("", text)


def _steps(messages: Iterable[Message]) -> int:
    """Count the assistant's steps; text and calls that follow each other are one."""
    steps = 0
    before = False
    for message in messages:
        steps += message.is_assistant and not before
        before = message.is_assistant
    return steps


class CallState(StrEnum):
    """The progress of a call."""

    OPEN = "open"  # it is being answered, or was when the server stopped
    ANSWERED = "answered"  # the scripted answer was sent, even if it is an error or cut
    STALLED = "stalled"  # nothing more is sent, and the client waits
    CLIENT_CLOSED = "client closed"  # the client closed the connection before the end


class ModelCall(msgspec.Struct, kw_only=True, eq=False):
    """One request for an answer. Only its state changes."""

    protocol: Protocol
    path: str
    model: str
    stream: bool
    tools: tuple[str, ...]  # names, as offered by the client
    system: str
    user_text: str  # the newest, without <system-reminder>
    tool_result: str  # since the model's last step
    script: str | None  # None: a side text or the default
    turn: int
    headers: Mapping[str, str]  # lower-case names; keys and tokens are not redacted
    body: Mapping[str, Any]  # the decoded request
    state: CallState = CallState.OPEN

    def __str__(self) -> str:
        place = "-" if self.script is None else f"{self.script}[{self.turn}]"
        return f"{place} {self.state} ({self.protocol}, {self.model})"


class OtherRequest(msgspec.Struct, frozen=True):
    """A request that is not for a model: telemetry, an update check, a wrong address."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Ledger:
    """All requests of a server, in order of arrival."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.other: list[OtherRequest] = []
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, call: ModelCall) -> None:
        """Add a new call."""
        self.calls.append(call)
        self._report(call)

    def mark(self, call: ModelCall, state: CallState) -> None:
        """Set the state of a call."""
        call.state = state
        self._report(call)

    async def wait_for(self, condition: Callable[[ModelCall], bool], *, timeout: float) -> ModelCall:
        """Wait for a call that meets the condition. Raise NoSuchCallError."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    for call in self.calls:
                        if condition(call):
                            return call
                    await self._change()
        except TimeoutError:
            raise NoSuchCallError(timeout, [str(call) for call in self.calls]) from None

    async def _change(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _report(self, call: ModelCall) -> None:
        _log.info("%s", call)
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
