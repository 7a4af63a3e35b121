"""Run the app in the screen's process, on the terminal that shows the first frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from textual.app import App

from atomic.base.errors import ExitCode
from atomic.chat.client import ChatClient, ProcessClient
from atomic.chat.protocol import (
    ChatEvent,
    Cleared,
    History,
    Intent,
    Interrupt,
    Left,
    RunEnded,
    RunKind,
    RunStarted,
    StatusChanged,
)
from atomic.config import ConfigError, atomic_home, find_project, load_settings
from atomic.tui.driver import BackgroundFilter, driver_for
from atomic.tui.main import ChatRequest
from atomic.tui.supervisor import SIGNALS, Report, resume_hints
from atomic.tui.terminal import Terminal, read_ready, write


@runtime_checkable
class AdaptsToBackground(Protocol):
    """An app that chooses its colours by the terminal's background."""

    def set_background(self, colour: str) -> None:
        """Take the background colour as the terminal reports it."""
        ...


def make_app(request: ChatRequest, background: str, report: Report, program: Sequence[str] | None = None) -> App[Any]:
    """Return the app. Its engine starts after the first frame. Raises ConfigError."""
    from atomic.tui.app import AtomicApp

    link = ProcessClient(request.engine_arguments(), session=request.resume or "", program=program)
    return AtomicApp(
        ReportingClient(link, report),
        settings=load_settings(find_project()),
        prompt=request.prompt,
        theme=request.theme,
        background=background,
        home=atomic_home(),
    )


def run_screen(request: ChatRequest, terminal: Terminal, report: Report, program: Sequence[str] | None = None) -> int:
    """Run the screen of a conversation.

    Configuration errors are printed after it has ended.
    """
    try:
        return run_app(lambda background: make_app(request, background, report, program), terminal, report)
    except ConfigError as error:
        report.last(f"atomic: {error}")
        return ExitCode.USAGE


def run_app(make: Callable[[str], App[Any]], terminal: Terminal, report: Report) -> int:
    """Run an app until it ends.

    `make` receives the background colour if it is already known.
    """
    colours: list[str] = []
    ahead = BackgroundFilter(colours.append).strip(read_ready())
    app = make(colours[0] if colours else "")

    def set_background(colour: str) -> None:
        """Pass on a colour that arrived after the start. Called in the input thread."""
        if isinstance(app, AdaptsToBackground):
            app.call_later(app.set_background, colour)

    app.driver_class = driver_for(terminal, report, ahead, set_background)
    code = asyncio.run(_until_left(app, report))
    if report.is_orphan:
        terminal.give_back(has_left=report.has_left)
        write("".join(f"{line}\r\n" for line in resume_hints(report.last_word, report.ways)))
    return code


async def _until_left(app: App[Any], report: Report) -> int:
    """Run the app until it ends.

    Signals end it in order, as `/exit` does. The supervisor's death ends it too, but
    workflows keep running then.
    """
    loop = asyncio.get_running_loop()

    def end(code: int) -> None:
        report.ends()
        app.exit(None, code)

    def leave_alone() -> None:
        """End the app after the supervisor was killed: only this process can restore
        the terminal.
        """
        report.is_orphan = True
        loop.remove_reader(report.supervisor)
        app.exit(None, 1)

    for number in SIGNALS:
        loop.add_signal_handler(number, end, ExitCode.SIGNALLED + number)
    loop.add_reader(report.supervisor, leave_alone)
    try:
        await app.run_async()
    finally:
        loop.remove_reader(report.supervisor)
    return app.return_code or 0


class ReportingClient:
    """Link that also reports to the supervisor how to resume, in case the screen dies."""

    def __init__(self, link: ChatClient, report: Report) -> None:
        self._link = link
        self._report = report
        self._session = ""
        self._flows: dict[str, RunStarted] = {}  # workflows by run id

    def send(self, intent: Intent) -> None:
        if isinstance(intent, Interrupt) and (flow := self._flows.get(intent.run)) is not None:
            self._report.way(flow.session, _resume(f"atomic resume {flow.session}"))
        self._link.send(intent)

    async def close(self) -> None:
        await self._link.close()

    async def events(self) -> AsyncIterator[ChatEvent]:
        async for event in self._link.events():
            self._note(event)
            yield event

    def _note(self, event: ChatEvent) -> None:
        match event:
            case StatusChanged(session=session) | Cleared(session=session) if session != self._session:
                self._session = session
                self._report.way("chat", "")
            case RunStarted(kind=RunKind.WORKFLOW, session=session) if session:
                self._flows[event.run] = event
                self._report.way(session, _goes_on(event))
            case RunEnded(run=run, resume=resume) if run in self._flows:
                flow = self._flows.pop(run)
                is_elsewhere = resume.startswith(("/resume", "atomic attach"))
                self._report.way(flow.session, _goes_on(flow) if is_elsewhere else _resume(resume))
            case Left(message=message):
                # The engine omits workflows that were paused before.
                ways = self._report.ways.items()
                others = [way for id, way in ways if id != "chat" and way and id not in message]
                self._report.last("\n".join(filter(None, (message, *others))))
            case _:
                pass
        if isinstance(event, RunStarted | History) and self._session:
            self._report.way("chat", _resume(f"atomic chat --resume {self._session}"))


def _goes_on(flow: RunStarted) -> str:
    return f"{flow.title or 'the workflow'} keeps running: atomic attach {flow.session}"


def _resume(command: str) -> str:
    return f"Resume with: {command}" if command else ""
