"""Open questions: how many, who asks, and the key that opens them."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from atomic.tui.state.model import QuestionEntry
from atomic.tui.text import one_line
from atomic.tui.widgets.panel import KEYS, Panel, key_hint
from atomic.tui.widgets.text import MUTED, content, fit, heading, windowed


class InboxPanel(Panel):
    """One row for each open question."""

    DEFAULT_CSS = """
    InboxPanel { height: auto; max-height: 6; }
    """

    def wanted(self) -> int:
        """Return the wanted rows, limited to leave room for other panels."""
        return min(6, super().wanted())

    def has_something(self) -> bool:
        """Return whether a question is open."""
        return bool(self.state.questions)

    def rows(self, width: int, height: int) -> list[Content]:
        """Return a heading and a row for each question."""
        return inbox_lines(list(self.state.questions.values()), width, height, self.shift, self.keys)


def inbox_lines(
    questions: list[QuestionEntry], width: int, height: int, shift: int = 0, keys: Mapping[str, str] = KEYS
) -> list[Content]:
    """Return the panel's lines for this size."""
    count = "1 question" if len(questions) == 1 else f"{len(questions)} questions"
    head = heading(
        content((f"? {count}", "bold $warning"), (key_hint(keys, "questions", "answers", "  "), MUTED)), width
    )
    return [head, *windowed([_line(entry, width) for entry in questions], height - 1, max(0, shift))]


def _line(entry: QuestionEntry, width: int) -> Content:
    who = one_line(entry.who)
    said = one_line(entry.question.header or entry.question.text)
    return fit(content(("? ", "$warning"), (f"{who} " if who else "", "bold"), (said, "")), width)
