"""The suggestion list and the queue at every width."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from atomic.tui.suggestions import Suggestion
from atomic.tui.text import cells, fit_text
from atomic.tui.widgets.popup import Popup, QueueView

HOSTILE = "a\x1b[31m\u202eb\tc\nd 漢字 \u200be"
ROWS = tuple(
    Suggestion(f"/{name}", name, 0, "<hint of some length>", HOSTILE) for name in ("one", "漢字" * 20, HOSTILE)
)


class WidgetApp(App[None]):
    """An app with only the two widgets."""

    def compose(self) -> ComposeResult:
        yield Popup()
        yield QueueView()


@pytest.mark.parametrize("width", [4, 5, 12, 40, 61, 80, 200])
async def test_rows_fit_the_width_and_have_no_control_characters(width: int) -> None:
    app = WidgetApp()
    async with app.run_test(size=(width, 12)) as pilot:
        popup = app.query_one(Popup)
        queue = app.query_one(QueueView)
        assert str(popup.render()) == ""
        popup.show(ROWS, 1)
        queue.show([HOSTILE, "second", "third", "fourth"])
        assert popup.render() is not None  # before the layout
        await pilot.pause()
        for widget in (popup, queue):
            lines = str(widget.render()).split("\n")
            assert len(lines) == 3
            assert all(cells(line) <= max(0, width - 2) for line in lines)
            assert all(line.isprintable() for line in lines)
        popup.show((), 0)
        queue.show([])
        await pilot.pause()
        assert not popup.display
        assert not queue.display


@pytest.mark.parametrize(
    ("text", "width", "shown"), [("abcdef", 4, "abc…"), ("漢字漢", 4, "漢…"), ("ab", 4, "ab  "), ("x", 0, "")]
)
def test_texts_fit_their_cells(text: str, width: int, shown: str) -> None:
    assert fit_text(text, width, pad=text == "ab") == shown
