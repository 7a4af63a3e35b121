"""Show the panels next to the transcript, or on a narrow screen as one-line strips and
one overlay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.css.scalar import Scalar, Unit

from atomic.tui.state.model import QuestionEntry, Screen
from atomic.tui.text import MUTED, content, fit, heading, one_line, windowed
from atomic.tui.widgets.agents import AgentPanel
from atomic.tui.widgets.graph import GraphPanel, GraphStrip
from atomic.tui.widgets.panel import KEYS, Panel, key_hint
from atomic.tui.widgets.tasks import TaskPanel, TaskStrip

if TYPE_CHECKING:
    from atomic.tui.widgets.transcript import TranscriptView


SIDE_COLUMNS = 36
_GRAPH_PART = 0.45  # minimum share of the height for the graph


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
    rows: list[Content] = []
    for entry in questions:
        who = one_line(entry.who)
        said = one_line(entry.question.header or entry.question.text)
        rows.append(fit(content(("? ", "$warning"), (f"{who} " if who else "", "bold"), said), width))
    return [head, *windowed(rows, height - 1, max(0, shift))]


class SidePanels(Vertical):
    """All panels in a column. Empty panels take no room."""

    DEFAULT_CSS = f"""
    SidePanels {{ width: {SIDE_COLUMNS}; padding: 0 1; background: $surface; }}
    SidePanels.-overlay {{ width: 1fr; }}
    SidePanels.-overlay Panel {{ max-height: 100%; }}
    """

    def __init__(self) -> None:
        super().__init__()
        self._graph = GraphPanel()
        self.panels: tuple[Panel, ...] = (InboxPanel(), self._graph, AgentPanel(), TaskPanel())

    def compose(self) -> ComposeResult:
        """Yield the panels, open questions first."""
        yield from self.panels

    def share(self, height: int) -> None:
        """Limit the graph to the rows that other panels leave, at least to its minimum
        share.

        A height of 0 removes the limit.
        """
        others = [panel for panel in self.panels if panel is not self._graph and panel.has_something()]
        free = height - sum(panel.wanted() for panel in others if not panel.has_class("-closed"))
        most = max(free, round(height * _GRAPH_PART))
        if not height:
            self._graph.styles.clear_rule("max_height")
        elif self._graph.styles.max_height != (size := Scalar(most, Unit.CELLS, Unit.CELLS)):
            self._graph.styles.max_height = size


WIDE = 100  # columns from which the panels are next to the transcript


class PanelLayout:
    """The panels, and which of them the user has opened or closed."""

    def __init__(self, transcript: TranscriptView) -> None:
        self._transcript = transcript
        self.side = SidePanels()
        self.strips: tuple[Panel, ...] = (GraphStrip(), TaskStrip())
        self.overlay = ""  # the panel that covers the transcript of a narrow screen
        self._hidden: set[str] = set()  # panels that were closed on a wide screen

    def is_empty(self, name: str) -> bool:
        """Return whether a panel has nothing to show."""
        return not any(panel.has_something() for panel in self.side.panels if panel_name(panel) == name)

    def toggle(self, name: str) -> None:
        """Open or close a panel of a wide screen."""
        self._hidden ^= {name}

    def toggle_overlay(self, name: str) -> None:
        """Open or close a panel of a narrow screen."""
        self.overlay = "" if self.overlay == name else name

    def show(self, screen: Screen, now: float, columns: int) -> bool:
        """Show the panels and return whether one covers the transcript."""
        is_wide = columns >= WIDE
        any_shown = False
        for panel in self.side.panels:
            name = panel_name(panel)
            is_closed = (name in self._hidden) if is_wide else (name != self.overlay)
            panel.set_class(is_closed, "-closed")
            panel.sync(screen, now)
            any_shown = any_shown or (panel.has_something() and not is_closed)
        for strip in self.strips:
            strip.set_class(is_wide, "-closed")
            strip.sync(screen, now)
        self.side.set_class(not is_wide, "-overlay")
        self.side.share(self._transcript.size.height if is_wide else 0)
        self.side.display = any_shown
        self._transcript.display = is_wide or not any_shown
        return any_shown and not is_wide


def panel_name(panel: Panel) -> str:
    """Return the name of a panel in keys and state: `TaskPanel` is `task`."""
    return type(panel).__name__.removesuffix("Panel").lower()
