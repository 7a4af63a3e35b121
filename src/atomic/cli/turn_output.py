"""Print a turn: as text for users, or as JSON for programs."""

from __future__ import annotations

import os
from typing import Any, Protocol

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


def report_for(output: str, out: Output) -> Report:
    """Return the report that `--output` asks for."""
    if output == "text":
        return TextReport(out)
    return JsonReport(out, every_event=output == "stream-json")


class JsonReport:
    """Prints one object at the end, or one for each event."""

    def __init__(self, out: Output, *, every_event: bool) -> None:
        self._out = out
        self._every_event = every_event

    def tell(self, event: AgentEvent) -> None:
        if self._every_event:
            self._out.put(json_line(event))

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        data: dict[str, Any] = {
            "type": "turn_ended",
            "reason": ended.reason,
            "text": ended.text,
            "usage": ended.usage,
            "session": session,
            "error": why or None,
        }
        self._out.put(json_line(data))
        if why:
            self._out.tell(why)

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.put(json_line({"type": "error", "exit_code": exit_code, "message": why}))
        self._out.tell(why)


class TextReport:
    """Prints the answer as it arrives, and notices on standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out
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
        if self._is_watched and ended.reason is EndReason.INTERRUPTED and not self._written:
            self._out.show("\n")  # after the ^C that the terminal shows
        if why:
            self._out.tell(why)

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(why)

    def _answer(self, text: str) -> None:
        if not text:
            return
        if self._is_new_message and self._written:
            self._write("\n" if self._written.endswith("\n") else "\n\n")
        self._is_new_message = False
        self._write(text)

    def _write(self, text: str) -> None:
        self._written = text
        self._out.put(self._stream.piece(text) if self._on_screen else text)

    def _note(self, line: str) -> None:
        """Print a line on standard error.

        On one screen with the answer it starts a new line.
        """
        if self._on_screen and self._is_watched:
            self._end_line()
        self._out.show(line)

    def _end_line(self) -> None:
        if self._written and not self._written.endswith("\n"):
            self._write("\n")
