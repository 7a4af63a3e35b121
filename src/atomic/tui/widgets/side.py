"""The panels beside the transcript, or above it where the screen is narrow."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.css.scalar import Scalar, Unit

from atomic.tui.state.model import Screen
from atomic.tui.widgets.agents import AgentPanel
from atomic.tui.widgets.graph import GraphPanel
from atomic.tui.widgets.inbox import InboxPanel
from atomic.tui.widgets.panel import Panel
from atomic.tui.widgets.tasks import TaskPanel

SIDE_COLUMNS = 36
_GRAPH_PART = 0.45  # of the height that the graph has in any case


class SidePanels(Vertical):
    """All panels below each other; those that have nothing to show take no room."""

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
        """Questions first, because somebody waits."""
        yield from self.panels

    def sync(self, screen: Screen, now: float) -> None:
        """Hand on what is new."""
        for panel in self.panels:
            panel.sync(screen, now)

    def share(self, height: int) -> None:
        """Let the graph have the rows that the others leave free of so many, and never less than its part; 0: all."""
        others = [panel for panel in self.panels if panel is not self._graph and panel.has_something()]
        free = height - sum(panel.wanted() for panel in others if not panel.has_class("-closed"))
        most = max(free, round(height * _GRAPH_PART))
        if not height:
            self._graph.styles.clear_rule("max_height")
        elif self._graph.styles.max_height != (size := Scalar(most, Unit.CELLS, Unit.CELLS)):
            self._graph.styles.max_height = size

    def has_something(self) -> bool:
        """Whether any of the panels has something to show."""
        return any(panel.has_something() for panel in self.panels)
