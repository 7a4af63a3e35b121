"""How a turn is told: as text for people, or as JSON for programs."""

from __future__ import annotations

import os
from typing import Any, Protocol

from atomic.base.terminal import HarmlessStream, one_line
from atomic.cli.output import Output
from atomic.cli.streams import STDERR, STDOUT, json_line, message
from atomic.providers import AgentEvent, EndReason, LimitReached, Notice, TextDelta, ToolStarted, TurnEnded


class Report(Protocol):
    """Tells a turn."""

    def tell(self, event: AgentEvent) -> None:
        """Something happened; never the end."""
        ...

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        """The turn is over; `why` is for people, empty if there is nothing to say."""
        ...

    def refuse(self, why: str, exit_code: int) -> None:
        """There was no turn."""
        ...


def report_for(output: str, out: Output) -> Report:
    """The report of `--output`."""
    if output == "text":
        return TextReport(out)
    return JsonReport(out, every_event=output == "stream-json")


class JsonReport:
    """One object at the end, or one for each event."""

    def __init__(self, out: Output, *, every_event: bool) -> None:
        self._out, self._every_event = out, every_event

    def tell(self, event: AgentEvent) -> None:
        if self._every_event:
            self._put(event)

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        self._put(
            {
                "type": "turn_ended",
                "reason": ended.reason,
                "text": ended.text,
                "usage": ended.usage,
                "session": session,
                "error": why or None,
            }
        )
        if why:
            self._out.tell(why)

    def refuse(self, why: str, exit_code: int) -> None:
        self._put({"type": "error", "exit_code": exit_code, "message": why})
        self._out.tell(why)

    def _put(self, data: Any) -> None:
        self._out.put(json_line(data))


class TextReport:
    """The answer as it comes; what else a person may want to know goes to standard error."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._on_screen = os.isatty(STDOUT)
        self._is_watched = os.isatty(STDERR)
        self._said = ""  # the end of what was written
        self._stream = HarmlessStream()
        self._is_new_message = False

    def tell(self, event: AgentEvent) -> None:
        match event:
            case TextDelta(agent=None):
                self._answer(event.text)
            case ToolStarted(agent=None):
                self._is_new_message = True
                if self._is_watched:
                    self._aside(f"[{one_line(event.name)}] {_gist(event.input)}\n")
            case Notice():
                self._aside(message(event.text))
            case LimitReached():
                self._aside(message(_limit(event)))
            case _:
                pass

    def end(self, ended: TurnEnded, session: str | None, why: str) -> None:
        if not self._said:
            self._answer(ended.text)
        self._end_line()
        if self._is_watched and ended.reason is EndReason.INTERRUPTED and not self._said:
            self._out.show("\n")  # behind the ^C that the terminal shows
        if why:
            self._out.tell(why)

    def refuse(self, why: str, exit_code: int) -> None:
        self._out.tell(why)

    def _answer(self, text: str) -> None:
        if not text:
            return
        if self._is_new_message and self._said:
            self._write("\n" if self._said.endswith("\n") else "\n\n")
        self._is_new_message = False
        self._write(text)

    def _write(self, text: str) -> None:
        self._said = text
        self._out.put(self._stream.piece(text) if self._on_screen else text)

    def _aside(self, line: str) -> None:
        """A line between the answer's; on one screen it may not begin in the middle of one of them."""
        if self._on_screen and self._is_watched:
            self._end_line()
        self._out.show(line)

    def _end_line(self) -> None:
        if self._said and not self._said.endswith("\n"):
            self._write("\n")


def _gist(input: dict[str, Any]) -> str:
    """What a tool is called with, in a few words: its first text."""
    text = next((value for value in input.values() if isinstance(value, str)), "")
    line = one_line(text)
    return line if len(line) <= 100 else f"{line[:99]}…"


def _limit(event: LimitReached) -> str:
    until = f" (until {event.reset_at:%Y-%m-%d %H:%M %Z})" if event.reset_at else ""
    return f"the provider does not serve now{f': {event.message}' if event.message else ''}{until}"
