"""Print a turn: as text for users, or as JSON for programs."""

from __future__ import annotations

import os
from typing import Any, Protocol

import msgspec

from atomic.base.redaction import EventRedactor, HeldText, Redactor
from atomic.base.terminal import HarmlessStream, one_line
from atomic.base.text import cut
from atomic.cli.output import Output
from atomic.cli.streams import STDERR, STDOUT, json_line, message
from atomic.providers import AgentEvent, EndReason, LimitReached, Notice, TextDelta, ToolStarted, TurnEnded

_INPUT_COLUMNS = 100


class Report(Protocol):
    """Receives the events of a turn."""

    def tell(self, event: AgentEvent) -> None:
        """Report an event, never the last one."""

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        """Report the end of the turn; `why` is a message for the user, or empty."""

    def refuse(self, why: str, exit_code: int) -> None:
        """Report that there was no turn."""


def report_for(output: str, out: Output, redactor: Redactor) -> Report:
    """Return the report that `--output` asks for."""
    if output == "text":
        return TextReport(out, redactor)
    return JsonReport(out, redactor, every_event=output == "stream-json")


class JsonReport:
    """Prints one object at the end, or one for each event, without secrets."""

    def __init__(self, out: Output, redactor: Redactor, *, every_event: bool) -> None:
        self._out = out
        self._redactor = redactor
        self._events = EventRedactor(redactor)
        self._every_event = every_event

    def tell(self, event: AgentEvent) -> None:
        if self._every_event:
            for line in self._events.add({"event": msgspec.to_builtins(event)}):
                self._out.put(json_line(line["event"]))

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        for line in self._events.rest():
            self._out.put(json_line(line["event"]))
        data: dict[str, Any] = {
            "type": "turn_ended",
            "reason": ended.reason,
            "text": ended.text,
            "usage": msgspec.to_builtins(ended.usage),
            "session": session,
            "error": why or None,
        }
        self._out.put(json_line(self._redactor.data(data)))
        if why:
            self._out.tell(self._redactor.text(why))

    def refuse(self, why: str, exit_code: int) -> None:
        why = self._redactor.text(why)
        self._out.put(json_line({"type": "error", "exit_code": exit_code, "message": why}))
        self._out.tell(why)


class TextReport:
    """Prints the answer as it arrives, and notices on standard error.

    Only a terminal gets the answer as it is: a pipe or a file may be a log.
    """

    def __init__(self, out: Output, redactor: Redactor) -> None:
        self._out = out
        self._redactor = redactor
        self._held = HeldText(redactor)
        self._on_screen = os.isatty(STDOUT)
        self._is_watched = os.isatty(STDERR)
        self._written = ""  # the last text
        self._stream = HarmlessStream()
        self._is_new_message = False

    def tell(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(agent=None):
                self._answer(event.text)
            case ToolStarted(agent=None):
                self._is_new_message = True
                if self._is_watched:
                    first_text = next((value for value in event.input.values() if isinstance(value, str)), "")
                    self._note(f"[{one_line(event.name)}] {cut(one_line(first_text), _INPUT_COLUMNS)}\n")
            case Notice():
                self._note(message(event.text))
            case LimitReached():
                detail = f": {event.message}" if event.message else ""
                until = f" (until {event.reset_at:%Y-%m-%d %H:%M %Z})" if event.reset_at else ""
                self._note(message(f"the agent's usage limit is reached{detail}{until}"))
            case _:
                pass

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        if not self._written:
            self._answer(ended.text)
        self._end_line()
        self._write_held(self._held.rest())
        if self._is_watched and ended.reason is EndReason.INTERRUPTED and not self._written:
            self._out.show("\n")  # after the ^C that the terminal shows
        if why:
            self._out.tell(self._redactor.text(why))

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(self._redactor.text(why))

    def _answer(self, text: str) -> None:
        if not text:
            return
        if self._is_new_message and self._written:
            self._write("\n" if self._written.endswith("\n") else "\n\n")
        self._is_new_message = False
        self._write(text)

    def _write(self, text: str) -> None:
        self._written = text
        if self._on_screen:
            self._out.put(self._stream.piece(text))
        else:
            self._write_held(self._held.add(text))

    def _write_held(self, text: str) -> None:
        if text:
            self._out.put(self._redactor.text(text, code=True))  # a program in the answer must still run

    def _note(self, line: str) -> None:
        """Print a line on standard error.

        On one screen with the answer it starts a new line.
        """
        if self._on_screen and self._is_watched:
            self._end_line()
        self._out.show(self._redactor.text(line))

    def _end_line(self) -> None:
        if self._written and not self._written.endswith("\n"):
            self._write("\n")
