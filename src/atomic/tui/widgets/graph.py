"""Graph panel: the drawing with a mark at each node, or a chain if there is little
room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from textual.content import Content, Span

from atomic.chat.protocol import RunKind
from atomic.tui.state.model import NodeEntry, RunEntry, Screen
from atomic.tui.text import MUTED, content, first_that_fits, fit, harmless, heading, one_line, spread, window
from atomic.tui.widgets.agents import agent_strip, agents_shown
from atomic.tui.widgets.panel import Panel

MARKS = {"active": "▶", "completed": "✓", "failed": "✗", "waiting": "?", "resting": "‖"}
COLOURS = {
    "active": "bold $primary",
    "completed": "$success",
    "failed": "$error",
    "waiting": "$warning",
    "resting": "$warning",
}
_AT_WORK = ("active", "waiting")
_NOT_YET = "○"
_WITH_AGENTS = 60  # columns from which the strip counts the agents too
_LEAST_ROWS = 8  # with fewer rows a part of the drawing is useless


class GraphPanel(Panel):
    """The graph of the active workflow, or of the last one."""

    DEFAULT_CSS = """
    GraphPanel { height: auto; }
    """

    def has_something(self) -> bool:
        """Return whether a workflow has started."""
        return workflow_shown(self.state) is not None

    def rows(self, width: int, height: int) -> list[Content]:
        """Return a heading and the drawing or the chain."""
        run = workflow_shown(self.state)
        return [] if run is None else graph_lines(run, width, height, self.shift)


class GraphStrip(Panel):
    """One line for a narrow screen."""

    DEFAULT_CSS = """
    GraphStrip { height: 1; padding: 0 1; }
    """

    def has_something(self) -> bool:
        """Return whether a workflow is active."""
        run = workflow_shown(self.state)
        return run is not None and run.is_active

    def rows(self, width: int, height: int) -> list[Content]:
        """Return the line."""
        run = workflow_shown(self.state)
        return [] if run is None else [graph_strip(run, self.state, width)]


def workflow_shown(screen: Screen) -> RunEntry | None:
    """Return the newest active workflow, or the newest one with known nodes."""
    known = [run for run in screen.runs.values() if run.kind is RunKind.WORKFLOW and (run.nodes or run.drawing)]
    return next((run for run in reversed(known) if run.is_active), known[-1] if known else None)


def graph_lines(run: RunEntry, width: int, height: int, shift: int = 0) -> list[Content]:
    """Return the panel's lines: the drawing around the active node, or the chain."""
    words = [content("  ", _word(node)) for node in run.nodes.values() if node.status in _AT_WORK][:3]
    if not run.is_active:
        words = [content((f"  {one_line(run.status)}", MUTED))] if run.status else []
    head = heading(content((one_line(run.title) or "workflow", "bold"), *words), width)
    if run.drawing and height > _LEAST_ROWS:
        return [head, *_drawing(run, width, height - 1, shift)]
    return [head, *(fit(row, width) for row in _folded_chain(run, width)[: max(1, height - 1)])]


def graph_strip(run: RunEntry, screen: Screen, width: int) -> Content:
    """Return the workflow's title, the nodes around the active one, and the agents."""
    agents = agent_strip(agents_shown(screen)) if width >= _WITH_AGENTS else content()
    title = content(("⚙ ", MUTED), (one_line(run.title) or "workflow", "bold"), "  ")
    room = width - title.cell_length - agents.cell_length - 2
    return spread(content(title, chain(run, room)), agents, width)


def chain(run: RunEntry, width: int) -> Content:
    """Return `planner ✓ → work ▶ (3) → review ○`, cut around the active node if too
    long.
    """
    nodes = _nodes(run)
    if not nodes:
        return content()
    focus = _focus(nodes)
    more = [content(("…", MUTED))]
    choices: list[Content] = []
    for count in range(min(len(nodes), 40), 0, -1):
        begin, end = window(len(nodes), count, focus)
        words = [_word(node) for node in nodes[begin:end]]
        parts = [*(more if begin > 0 else ()), *words, *(more if end < len(nodes) else ())]
        choices.append(content((" → ", MUTED)).join(parts))
    return first_that_fits([*choices, _word(nodes[focus])], max(width, 0))


def _nodes(run: RunEntry) -> list[NodeEntry]:
    """Return the nodes.

    After the end of the run, unfinished nodes are shown as resting.
    """
    if run.is_active:
        return list(run.nodes.values())
    return [replace(node, status="resting") if node.status in _AT_WORK else node for node in run.nodes.values()]


def _focus(nodes: Sequence[NodeEntry]) -> int:
    """Return the index of the last active or waiting node, or of the last that has
    started.
    """
    at_work = [at for at, node in enumerate(nodes) if node.status in (*_AT_WORK, "resting")]
    started = [at for at, node in enumerate(nodes) if node.status]
    return (at_work or started or [0])[-1]


def _word(node: NodeEntry) -> Content:
    colour = COLOURS.get(node.status, MUTED)
    times = f" ({node.times})" if node.times > 1 else ""
    return content((one_line(node.id), colour), (f" {MARKS.get(node.status, _NOT_YET)}{times}", colour))


def _folded_chain(run: RunEntry, width: int) -> list[Content]:
    """Return the chain in several lines. A line ends after an arrow."""
    rows = [content()]
    words = [_word(node) for node in _nodes(run)]
    for at, word in enumerate(words):
        piece = content(word, (" → ", MUTED)) if at + 1 < len(words) else word
        if rows[-1].cell_length and rows[-1].cell_length + word.cell_length + 2 > width:
            rows.append(content())
        rows[-1] = content(rows[-1], piece)
    return rows


def _drawing(run: RunEntry, width: int, height: int, shift: int) -> list[Content]:
    """Return the visible part of the drawing around the active node."""
    grid = [_cells(row) for row in run.drawing]
    styles = _mark(grid, run)
    nodes = [node for node in _nodes(run) if node.id in run.positions]
    row, column, cells = run.positions[nodes[_focus(nodes)].id] if nodes else (0, 0, 0)
    broad = max(map(len, grid), default=0)
    top, bottom = window(len(grid), height, min(max(0, row + shift), len(grid) - 1))
    left = 0 if broad <= width else max(0, min(column + cells // 2 - width // 2, broad - width))
    return [_crop(grid[at], styles.get(at, []), left, width) for at in range(top, bottom)]


def _mark(grid: list[list[str]], run: RunEntry) -> dict[int, list[tuple[int, int, str]]]:
    """Put a status mark and the iteration next to each node name.

    Return the styled ranges.

    Only blanks inside the box are overwritten.
    """
    styles: dict[int, list[tuple[int, int, str]]] = {}
    nodes = {node.id: node for node in _nodes(run)}
    for id, (row, column, cells) in run.positions.items():
        node = nodes.get(id)
        if node is None or not node.status or not 0 <= row < len(grid):
            continue
        begin = _put(grid[row], column - 1, MARKS.get(node.status, _NOT_YET), column)
        end = column + cells
        if node.times > 1:
            end = max(_put(grid[row], end, sign, end) for sign in (f" ×{node.times}", f"×{node.times}"))
        styles.setdefault(row, []).append((begin, end, COLOURS.get(node.status, "")))
    return styles


def _put(row: list[str], at: int, sign: str, otherwise: int) -> int:
    """Write over blanks only and return the outer edge of the marked range."""
    end = at + len(sign)
    if at < 0 or end > len(row) or any(cell != " " for cell in row[at:end]):
        return otherwise
    row[at:end] = sign
    return at if at < otherwise else end


def _cells(text: str) -> list[str]:
    """Return a string for each column.

    The second column of a wide character is empty.
    """
    cells: list[str] = []
    for letter in harmless(text).replace("\n", "␊"):
        wide = cell_len(letter)
        if wide == 0 and cells:
            cells[-1] += letter
        else:
            cells += [letter, *[""] * (wide - 1)]
    return cells


def _crop(row: list[str], marks: Sequence[tuple[int, int, str]], left: int, width: int) -> Content:
    """Return the visible columns of a row. Half of a wide character becomes a blank."""
    shown = row[left : left + width]
    if shown and shown[0] == "":
        shown[0] = " "
    if shown and cell_len(shown[-1]) > 1:
        shown[-1] = " "
    offsets = [0]
    for cell in shown:
        offsets.append(offsets[-1] + len(cell))
    spans = [Span(0, offsets[-1], MUTED)]
    for begin, end, style in marks:
        first, last = (min(max(0, at - left), len(shown)) for at in (begin, end))
        if first < last and style:
            spans.append(Span(offsets[first], offsets[last], style))
    return fit(Content("".join(shown), spans), width)
