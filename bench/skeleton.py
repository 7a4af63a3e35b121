"""A minimal Textual program: an empty transcript, a prompt and a status line."""

from textual.app import App, ComposeResult
from textual.widgets import Static, TextArea


class Skeleton(App[None]):
    """What any screen on Textual pays."""

    CSS = "#transcript { height: 1fr; } TextArea { height: 3; border: none; }"

    def compose(self) -> ComposeResult:
        """Return three widgets."""
        yield Static("", id="transcript")
        yield TextArea()
        yield Static("READY", id="status")

    def on_mount(self) -> None:
        """Stop the blinking cursor, which is a timer."""
        area = self.query_one(TextArea)
        area.cursor_blink = False
        area.focus()


if __name__ == "__main__":
    Skeleton().run()
