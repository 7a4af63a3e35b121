"""A dialog that asks yes or no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Key

from atomic.tui.clean_text import harmless, one_line
from atomic.tui.screens.dialog import Dialog, Item, Row, RowList, fixed, keys_line, paragraph
from atomic.tui.widgets.text import MUTED, content

_AROUND = 5
# Rows of the two answers.
_YES = 2
_NO = 3


class ConfirmScreen(Dialog[bool]):
    """Returns True or False. No is selected first, because the action cannot be undone."""

    DEFAULT_CSS = """
    ConfirmScreen > .frame { max-width: 80; border: round $warning; }
    """

    def __init__(self, title: str, text: str = "", *, yes: str = "Yes", no: str = "No") -> None:
        super().__init__()
        self._heading = one_line(title)
        self._text = harmless(text)
        self._answers = (one_line(yes), one_line(no))
        self._title = Row()
        self._list = RowList(reserved=_AROUND)
        self._keys = Row()

    def compose(self) -> ComposeResult:
        """Yield title, text, the two answers and the keys."""
        with Vertical(classes="frame"):
            yield self._title
            yield self._list
            yield self._keys

    def on_mount(self) -> None:
        """Show the dialog."""
        self._title.show(lambda _: content((self._heading, "bold $warning")))
        rows = [content((f"{letter} ", "$primary"), text) for letter, text in zip("yn", self._answers, strict=True)]
        answers = [Item(lambda _, row=row: [row], value=str(at)) for at, row in enumerate(rows)]
        self._list.show([paragraph(content((self._text, MUTED))), fixed(content()), *answers], _NO)
        self._keys.show(keys_line(("y/n", "answer"), ("⏎", "choose"), ("Esc", "no")))

    def on_key(self, event: Key) -> None:
        """Answer on a letter, or on Enter after the arrows."""
        does = {
            "y": lambda: self._finish(True),
            "n": lambda: self._finish(False),
            "escape": lambda: self._finish(False),
            "up": lambda: self._list.step(-1),
            "down": lambda: self._list.step(1),
            "enter": lambda: self._finish(self._list.at == _YES),
        }.get(event.key)
        if does is not None:
            event.stop()
            event.prevent_default()
            does()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """Answer on a click."""
        self._finish(message.at == _YES)

    def _finish(self, answer: bool) -> None:
        if self.is_current:
            self.dismiss(answer)
