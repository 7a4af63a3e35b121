"""An app with only the transcript, and events to show in it."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import App, ComposeResult

from atomic.chat.protocol import Activity, ChatEvent, RunEnded, RunKind, RunStarted
from atomic.providers.events import AgentEvent
from atomic.tui.state.store import Store
from atomic.tui.widgets.transcript import TranscriptView


class TranscriptApp(App[None]):
    """Shows the transcript of a store. `show_events` paints one frame."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, events: Iterable[ChatEvent] = (), *, theme: str = "textual-dark") -> None:
        super().__init__()
        self.store = Store()
        self.now = 1000.0
        self.opened: list[str] = []
        self._first_events = tuple(events)
        self._first_theme = theme

    def compose(self) -> ComposeResult:
        yield TranscriptView()

    def on_mount(self) -> None:
        self.theme = self._first_theme
        self.show_events(*self._first_events)

    @property
    def view(self) -> TranscriptView:
        return self.query_one(TranscriptView)

    def show_events(self, *events: ChatEvent) -> None:
        for event in events:
            self.store.apply(event, self.now)
        self.view.sync(self.store.screen, self.now)

    def on_transcript_view_toggled(self, message: TranscriptView.Toggled) -> None:
        self.store.toggle(message.block_id)
        self.view.sync(self.store.screen, self.now)

    def on_transcript_view_link_opened(self, message: TranscriptView.LinkOpened) -> None:
        self.opened.append(message.url)

    def rows(self) -> list[str]:
        """Return the visible lines, without the margin."""
        view = self.view
        return [view.render_line(y).text.rstrip()[1:] for y in range(view.size.height)]


def turn(*events: AgentEvent, run: str = "r1", prompt: str = "hi", ends: bool = True) -> list[ChatEvent]:
    """Return the events of a turn."""
    turn_events: list[ChatEvent] = [RunStarted(run=run, kind=RunKind.TURN, prompt=prompt)]
    turn_events += [Activity(run=run, event=event) for event in events]
    return [*turn_events, RunEnded(run=run, status="done")] if ends else turn_events
