"""Yes or no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key

from atomic.tui.harmless import harmless, one_line
from atomic.tui.screens.sheet import Dialog, Item, Row, Sheet, fixed, keys_line, paragraph
from atomic.tui.widgets.text import MUTED, content

_AROUND = 5
_YES, _NO = 2, 3  # the rows of the two answers


class ConfirmScreen(Dialog[bool]):
    """It ends with True or False. No is chosen first: what is asked here cannot be taken back."""

    DEFAULT_CSS = """
    ConfirmScreen > .frame { max-width: 80; border: round $warning; }
    """

    def __init__(self, title: str, text: str = "", *, yes: str = "Yes", no: str = "No") -> None:
        super().__init__()
        self._heading, self._text, self._answers = one_line(title), harmless(text), (one_line(yes), one_line(no))
        self._title, self._sheet, self._keys = Row(), Sheet(reserved=_AROUND), Row()

    def compose(self) -> ComposeResult:
        """Title, text, the two answers, keys."""
        with Vertical(classes="frame"):
            yield self._title
            yield self._sheet
            yield self._keys

    def on_mount(self) -> None:
        """Show it."""
        self._title.show(lambda _: content((self._heading, "bold $warning")))
        rows = [content((f"{letter} ", "$primary"), text) for letter, text in zip("yn", self._answers, strict=True)]
        answers = [Item(lambda _, row=row: [row], value=str(at)) for at, row in enumerate(rows)]
        self._sheet.show([paragraph(content((self._text, MUTED))), fixed(content()), *answers], _NO)
        self._keys.show(keys_line(("y/n", "answer"), ("⏎", "choose"), ("Esc", "no")))

    def on_key(self, event: Key) -> None:
        """Letters answer at once; arrows and Enter too."""
        does = {
            "y": lambda: self._finish(True),
            "n": lambda: self._finish(False),
            "escape": lambda: self._finish(False),
            "up": lambda: self._sheet.step(-1),
            "down": lambda: self._sheet.step(1),
            "enter": lambda: self._finish(self._sheet.at == _YES),
        }.get(event.key)
        if does is not None:
            event.stop()
            event.prevent_default()
            does()

    def on_sheet_chosen(self, message: Sheet.Chosen) -> None:
        """A click answers."""
        self._finish(message.at == _YES)

    def _finish(self, answer: bool) -> None:
        if self.is_current:
            self.dismiss(answer)
