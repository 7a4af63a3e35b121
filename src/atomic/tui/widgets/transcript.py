"""temporary"""

from __future__ import annotations
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.message import Message
from textual.content import Content
from atomic.tui.state.model import Screen


class TranscriptView(VerticalScroll):
    class Toggled(Message):
        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    def compose(self):
        yield Static(markup=False)

    def sync(self, screen: Screen, now: float) -> None:
        if self.is_mounted:
            self.query_one(Static).update(
                Content("\n".join(f"{b.kind} {b.title} {b.text} {b.output}" for b in screen.blocks))
            )
        self.scroll_end(animate=False)

    def follow(self) -> None:
        self.scroll_end(animate=False)

    def selected_text(self) -> str:
        return ""

    def last_answer(self, screen: Screen) -> str:
        return "\n".join(b.text for b in screen.blocks if b.kind == "answer")
