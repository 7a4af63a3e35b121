"""Texts sent while the agent was busy, shown above the prompt and edited with ↑."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content, Span
from textual.widget import Widget

from atomic.tui.text import fit, one_line

ROWS = 3


class QueueView(Widget):
    """The queued texts, the next one first."""

    DEFAULT_CSS = """
    QueueView {
        height: auto;
        display: none;
        padding: 0 1;
        color: $text-muted;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="queue", markup=False)
        self._texts: tuple[str, ...] = ()

    def show(self, texts: Sequence[str]) -> None:
        """Show these texts. Hidden if there are none."""
        if tuple(texts) == self._texts:
            return
        self._texts = tuple(texts)
        self.display = bool(texts)
        self.styles.height = min(len(texts), ROWS)
        self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        shown = self._texts[:ROWS]
        left = len(self._texts) - len(shown)
        behind = ["" for _ in shown]
        behind[-1:] = [f"  +{left}" if left else "  ↑ edits"] if shown else []
        rows = (
            _line(f"{at} ", text, width, more) for at, (text, more) in enumerate(zip(shown, behind, strict=True), 1)
        )
        return Content("\n").join(list(rows))


def _line(mark: str, text: str, width: int, behind: str) -> Content:
    behind = behind if len(behind) + 12 < width else ""
    line = mark + fit(one_line(text), width - len(mark) - len(behind), pad=bool(behind)) + behind
    return Content(line, spans=[Span(0, len(mark), "bold $primary")])
