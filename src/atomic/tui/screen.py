"""The screen's process: Textual's app on the terminal that the first frame has taken."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from textual.app import App

from atomic.config import ConfigError, atomic_home, find_project, load_settings
from atomic.tui.background import BackgroundFilter
from atomic.tui.driver import driver_for
from atomic.tui.link import EngineLink, ProcessLink
from atomic.tui.main import ChatRequest
from atomic.tui.protocol import (
    Cleared,
    History,
    Intent,
    Interrupt,
    Left,
    News,
    RunEnded,
    RunKind,
    RunStarted,
    StatusChanged,
)
from atomic.tui.supervisor import SIGNALLED, Report, how_to_go_on
from atomic.tui.terminal import Terminal, read_ready, write

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def make_app(request: ChatRequest, background: str, report: Report, program: Sequence[str] | None = None) -> App[Any]:
    """The screen itself, with an engine that it starts after its first picture. Raises ConfigError."""
    from atomic.tui.app import AtomicApp

    link = ProcessLink(request.engine_arguments(), session=request.resume or "", program=program)
    return AtomicApp(
        TellingLink(link, report),
        settings=load_settings(find_project()),
        prompt=request.prompt,
        theme=request.theme,
        background=background,
        home=atomic_home(),
    )


def run_screen(request: ChatRequest, terminal: Terminal, report: Report, program: Sequence[str] | None = None) -> int:
    """The screen of a conversation; a mistake in the configuration is told when the terminal is back."""
    try:
        return run_app(lambda background: make_app(request, background, report, program), terminal, report)
    except ConfigError as error:
        report.last(f"atomic: {error}")
        return 2


def run_app(make: Callable[[str], App[Any]], terminal: Terminal, report: Report) -> int:
    """Run an app to its end; `make` is given the colour behind the text, if the terminal has told it by now."""
    colours: list[str] = []
    ahead = BackgroundFilter(colours.append).strip(read_ready())
    app = make(colours[0] if colours else "")

    app.driver_class = driver_for(terminal, report, ahead, partial(_hear_late, app))
    code = asyncio.run(_until_left(app, report))
    if report.is_orphan:
        _conclude_alone(terminal, report)
    return code


def _hear_late(app: App[Any], colour: str) -> None:
    """The terminal has told its colour when the screen was there already; called by the input's thread."""
    if (hear := getattr(app, "hear_background", None)) is not None:
        app.call_later(hear, colour)


async def _until_left(app: App[Any], report: Report) -> int:
    """Signals end the app in order, as `/exit` does; so does the supervisor's death, but workflows go on then."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _end, app, report, SIGNALLED + number)
    loop.add_reader(report.supervisor, _leave_alone, app, report)
    try:
        await app.run_async()
    finally:
        loop.remove_reader(report.supervisor)
    return app.return_code or 0


def _end(app: App[Any], report: Report, code: int) -> None:
    report.ends()
    app.exit(None, code)


def _leave_alone(app: App[Any], report: Report) -> None:
    """The supervisor was killed: nobody else will put the terminal back."""
    report.is_orphan = True
    asyncio.get_running_loop().remove_reader(report.supervisor)
    app.exit(None, 1)


def _conclude_alone(terminal: Terminal, report: Report) -> None:
    terminal.give_back(has_left=report.has_left)
    lines = how_to_go_on(report.last_word, report.ways)
    write("".join(f"{line}\r\n" for line in lines))


class TellingLink:
    """A link that tells the supervisor on the way what there would be to go on with, if all of this died now."""

    def __init__(self, link: EngineLink, report: Report) -> None:
        self._link, self._report = link, report
        self._session = ""
        self._flows: dict[str, RunStarted] = {}  # workflows by their run

    def send(self, intent: Intent) -> None:
        if isinstance(intent, Interrupt) and (flow := self._flows.get(intent.run)) is not None:
            self._report.way(flow.session, _resume(f"atomic resume {flow.session}"))
        self._link.send(intent)

    async def close(self) -> None:
        await self._link.close()

    async def news(self) -> AsyncIterator[News]:
        async for news in self._link.news():
            self._note(news)
            yield news

    def _note(self, news: News) -> None:
        match news:
            case StatusChanged(session=session) | Cleared(session=session) if session != self._session:
                self._session = session
                self._report.way("chat", "")
            case RunStarted(kind=RunKind.WORKFLOW, session=session) if session:
                self._flows[news.run] = news
                self._report.way(session, _goes_on(news))
            case RunEnded(run=run, resume=resume) if run in self._flows:
                flow = self._flows.pop(run)
                is_elsewhere = resume.startswith(("/resume", "atomic attach"))
                self._report.way(flow.session, _goes_on(flow) if is_elsewhere else _resume(resume))
            case Left(message=message):
                self._report.last(self._with_others(message))
            case _:
                pass
        if isinstance(news, RunStarted | History) and self._session:
            self._report.way("chat", _resume(f"atomic chat --resume {self._session}"))

    def _with_others(self, message: str) -> str:
        """The engine speaks of what was at work when it was left; of what had been paused before, we do."""
        flows = {id: way for id, way in self._report.ways.items() if id != "chat" and way and id not in message}
        return "\n".join(filter(None, (message, *flows.values())))


def _goes_on(flow: RunStarted) -> str:
    return f"{flow.title or 'the workflow'} keeps running: atomic attach {flow.session}"


def _resume(command: str) -> str:
    return f"Resume with: {command}" if command else ""
