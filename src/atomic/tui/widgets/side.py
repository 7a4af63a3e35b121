"""The side panels, which cover the transcript on a narrow screen."""

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
_GRAPH_PART = 0.45  # minimum share of the height for the graph


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

    def sync(self, screen: Screen, now: float) -> None:
        """Pass the state to all panels."""
        for panel in self.panels:
            panel.sync(screen, now)

    def share(self, height: int) -> None:
        """Limit the graph to the rows that other panels leave, at least to its minimum share.

        A height of 0 removes the limit.
        """
        others = [panel for panel in self.panels if panel is not self._graph and panel.has_something()]
        free = height - sum(panel.wanted() for panel in others if not panel.has_class("-closed"))
        most = max(free, round(height * _GRAPH_PART))
        if not height:
            self._graph.styles.clear_rule("max_height")
        elif self._graph.styles.max_height != (size := Scalar(most, Unit.CELLS, Unit.CELLS)):
            self._graph.styles.max_height = size

    def has_something(self) -> bool:
        """Return whether any panel has something to show."""
        return any(panel.has_something() for panel in self.panels)
