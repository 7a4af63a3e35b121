"""Draw a graph as SVG, with the same boxes and lines as the text.

Sizes come from the grid of cells, so nothing depends on the reader's fonts. Colours are
plain rules for light and dark themes, because not every SVG viewer supports variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from atomic.graph.drawing.layout import layout
from atomic.graph.drawing.parts import Box, Label, Line, Marker, Part, Point, Shape, Sketch, Stroke
from atomic.graph.drawing.tree import tree_of
from atomic.graph.drawing.words import clean, cut, width

if TYPE_CHECKING:
    from atomic.graph.engine.compiled import CompiledGraph

# A cell is slightly wider than a character of the 13 pixel font.
CELL = 8.0
ROW = 18.0
MARGIN = 20.0
HEAD = 22.0  # the height of the name, and of the description
WIDEST = 220  # cells
ROUND = 6.0  # the radius of a line's corners
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

# kind: border and background of its box, in light and in dark
COLOURS = {
    "plain": ("#57606a", "#f6f8fa", "#9198a1", "#1c2128"),
    "tool": ("#0969da", "#eef6ff", "#58a6ff", "#10233d"),
    "agent": ("#8250df", "#f6f0ff", "#bc8cff", "#271b3d"),
    "decision": ("#9a6700", "#fff8e1", "#e3b341", "#332701"),
    "if": ("#9a6700", "#fff8e1", "#e3b341", "#332701"),
    "ask": ("#bf3989", "#fff0f7", "#f778ba", "#3a1a2c"),
    "wait": ("#bf3989", "#fff0f7", "#f778ba", "#3a1a2c"),
    "parallel": ("#1a7f37", "#ebfbef", "#3fb950", "#10281a"),
    "map": ("#1b7c83", "#e9f8f9", "#39c5cf", "#0c2729"),
    "tasks": ("#1b7c83", "#e9f8f9", "#39c5cf", "#0c2729"),
    "loop": ("#bc4c00", "#fff3ea", "#f0883e", "#33200f"),
    "subgraph": ("#57606a", "#f6f8fa", "#9198a1", "#1c2128"),
}
FAILURE = ("#cf222e", "#fff0ee", "#ff7b72", "#3c1618")
LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "dim": "#59636e", "line": "#818b98"}
DARK = {"ground": "#0d1117", "ink": "#e6edf3", "dim": "#9198a1", "line": "#6e7681"}


def to_svg(compiled: CompiledGraph[Any]) -> str:
    """Return the graph as a self-contained SVG document."""
    sketch = layout(tree_of(compiled), WIDEST)
    name = clean(compiled.name)
    about = clean(compiled.description)
    columns = max(sketch.width, min(width(name) * 5 // 4, WIDEST), min(width(about), 60))
    head: list[str] = []
    if name:
        head.append(f'<text class="name" x="{_n(MARGIN)}" y="32">{escape(cut(name, columns * 4 // 5))}</text>')
    if about:
        y = 52 if name else 32
        head.append(f'<text class="note" x="{_n(MARGIN)}" y="{y}">{escape(cut(about, columns))}</text>')
    top = MARGIN + HEAD * len(head)
    wide = columns * CELL + 2 * MARGIN
    high = sketch.height * ROW + MARGIN + top
    body = "\n".join(
        [
            f"<title>{escape(name or 'graph')}</title>",
            f"<style>{_style()}</style>",
            f'<rect class="ground" width="{_n(wide)}" height="{_n(high)}"/>',
            *head,
            *_Painter(MARGIN, top).paint(sketch),
        ]
    )
    size = f'width="{_n(wide)}" height="{_n(high)}" viewBox="0 0 {_n(wide)} {_n(high)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="atomic-graph" role="img" {size}>\n{body}\n</svg>\n'


class _Painter:
    """Turns parts in cells into elements in pixels."""

    def __init__(self, left: float, top: float) -> None:
        self._left = left
        self._top = top
        # From x to x, at y: how far above it arrows end.
        self._obstacles: list[tuple[float, float, float, float]] = []

    def paint(self, sketch: Sketch) -> Iterator[str]:
        parts = list(sketch.flat())
        for x, y, part in parts:
            left, middle = self._at(x, y)
            if isinstance(part, Label) and part.marker:
                self._obstacles.append((left - 1, left + 1, middle, 7))
            elif isinstance(part, Box) and _has_pill(part):
                self._obstacles.append((left, left + (width(part.title) + 3) * CELL, middle, 10))
        for layer in range(4):
            for x, y, part in parts:
                if _layer(part) == layer:
                    yield from self._part(x, y, part)
        for x, y, part in parts:
            if isinstance(part, Box) and _has_pill(part):
                yield from self._pill(x, y, part)

    def _part(self, x: int, y: int, part: Part) -> Iterator[str]:
        match part:
            case Box():
                yield from self._box(x, y, part)
            case Line():
                yield from self._line([(x + dx, y + dy) for dx, dy in part.points], part)
            case Label():
                yield from self._label(x, y, part)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        """Return the middle of a cell."""
        return self._left + (x + 0.5) * CELL, self._top + (y + 0.5) * ROW

    def _box(self, x: int, y: int, box: Box) -> Iterator[str]:
        left, top = self._at(x, y)
        wide = (box.width - 1) * CELL
        high = (box.height - 1) * ROW
        yield f'<g class="{box.shape} {_kind(box)}" data-id="{escape(box.path)}">'
        yield f"<title>{escape(box.path or box.title)}</title>"
        if box.shape is Shape.FRAME and box.kind in ("map", "tasks"):  # drawn twice, to show repetition
            yield _rect(left + 4, top + 4, wide, high, 10)
        flat = box.shape is Shape.BAR and not box.lines
        yield _rect(left, top, wide, high + (5 if flat else 0), 10 if _has_pill(box) else 5)
        yield from _words(left + 1.5 * CELL, top, box)
        yield "</g>"

    def _pill(self, x: int, y: int, box: Box) -> Iterator[str]:
        """Draw a title on the upper border of its box, over the edges that enter there."""
        left, top = self._at(x, y)
        yield f'<g class="pill {_kind(box)}">'
        yield _rect(left + CELL, top - 10, width(box.title) * CELL * 0.92 + 2 * CELL, 20, 10)
        yield _text("title", left + 2 * CELL, top, box.title)
        yield "</g>"

    def _line(self, cells: Sequence[Point], line: Line) -> Iterator[str]:
        points = [self._at(*cell) for number, cell in enumerate(cells) if number == 0 or cell != cells[number - 1]]
        if line.arrow:
            dx = 0
            dy = 1
            if len(points) > 1:
                (x, y), (end_x, end_y) = points[-2:]
                dx = (end_x > x) - (end_x < x)
                dy = (end_y > y) - (end_y < y)
            x, y = self._tip(*points[-1], dx, dy)
            points = [*(points[:-1] or points), (x - 6 * dx, y - 6 * dy)]
            yield _arrow(x, y, dx, dy)
        yield f'<path class="line" d="{_path(points)}"/>'
        if line.stroke is Stroke.AT_ONCE:
            for (x, y), (end_x, end_y) in pairwise(points):
                if y == end_y:
                    yield f'<path class="line at-once" d="M{_n(x)} {_n(y)}H{_n(end_x)}"/>'

    def _tip(self, x: float, y: float, dx: int, dy: int) -> tuple[float, float]:
        """Return where an arrow ends: at the border in the next cell, or above its
        title.
        """
        x, y = x + dx * CELL, y + dy * ROW
        above = (gap for left, right, middle, gap in self._obstacles if left <= x <= right and middle == y)
        return x - dx, y - dy * max(above, default=1)

    def _label(self, x: int, y: int, label: Label) -> Iterator[str]:
        left, middle = self._at(x, y)
        if label.marker:
            yield from _sign(label.marker, left, middle)
            yield _text("place", left + 1.5 * CELL, middle, label.text)
            return
        wide = width(label.text) * CELL
        yield _rect(left - CELL / 2 + wide * 0.05 - 3, middle - 8, wide * 0.9 + 6, 16, 3, "under")
        yield _text("label", left - CELL / 2 + wide * 0.05, middle, label.text)


def _layer(part: Part) -> int:
    """Return the order of painting: frames, lines, boxes, text."""
    match part:
        case Box():
            return 0 if part.shape is Shape.FRAME or (part.shape is Shape.ASIDE and not part.lines) else 2
        case Line():
            return 1
        case Label():
            return 3


def _has_pill(box: Box) -> bool:
    return bool(box.title) and (_layer(box) == 0 or (box.shape is Shape.BAR and bool(box.lines)))


def _kind(box: Box) -> str:
    return "failure" if box.shape is Shape.ASIDE else box.kind


def _words(x: float, top: float, box: Box) -> Iterator[str]:
    small = box.shape in (Shape.BOX, Shape.ASIDE)
    if small and box.lines:
        yield _text("kind", x, top + 10, box.title)
    elif not _has_pill(box):
        yield _text("head", x, top + (ROW + 5) / 2, box.title)
    for number, line in enumerate(box.lines, 1):
        yield _text("id" if small and number == 1 else "note", x, top + number * ROW + (6 if small else 0), line)


def _sign(marker: Marker, x: float, y: float) -> Iterator[str]:
    match marker:
        case Marker.START:
            yield f'<circle class="sign" cx="{_n(x)}" cy="{_n(y)}" r="6"/>'
        case Marker.END:
            yield f'<circle class="ring" cx="{_n(x)}" cy="{_n(y)}" r="7"/>'
            yield f'<circle class="sign" cx="{_n(x)}" cy="{_n(y)}" r="4"/>'
        case _:
            yield f'<circle class="ring failed" cx="{_n(x)}" cy="{_n(y)}" r="7"/>'
            yield f'<path class="ring failed" d="M{_n(x - 3)} {_n(y - 3)}l6 6m0 -6l-6 6"/>'


def _rect(x: float, y: float, wide: float, high: float, rounding: float, style: str = "") -> str:
    kind = f'class="{style}" ' if style else ""
    return f'<rect {kind}x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" height="{_n(high)}" rx="{_n(rounding)}"/>'


def _text(style: str, x: float, middle: float, text: str) -> str:
    """Return text whose middle is at that height.

    Characters that a font may not have are squeezed into their cells.
    """
    cell = {"kind": 0.8, "label": 0.9, "note": 0.9, "title": 0.92}.get(style, 1.0) * CELL
    fixed = "" if text.isascii() else f' textLength="{_n(width(text) * cell)}" lengthAdjust="spacingAndGlyphs"'
    return f'<text class="{style}" x="{_n(x)}" y="{_n(middle + 4.5)}"{fixed}>{escape(text)}</text>'


def _arrow(x: float, y: float, dx: int, dy: int) -> str:
    back_x = x - 8 * dx
    back_y = y - 8 * dy
    side_x = 4.5 * dy
    side_y = 4.5 * dx
    corners = ((x, y), (back_x - side_x, back_y - side_y), (back_x + side_x, back_y + side_y))
    return f'<polygon class="tip" points="{" ".join(f"{_n(a)},{_n(b)}" for a, b in corners)}"/>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path with round corners."""
    parts = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near = _towards(corner, before)
        far = _towards(corner, after)
        parts.append(f"L{_n(near[0])} {_n(near[1])}Q{_n(corner[0])} {_n(corner[1])} {_n(far[0])} {_n(far[1])}")
    return "".join([*parts, f"L{_n(points[-1][0])} {_n(points[-1][1])}"])


def _towards(corner: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """Return a point near the corner in the direction of the other point."""
    dx = other[0] - corner[0]
    dy = other[1] - corner[1]
    part = min(0.5, ROUND / max(abs(dx), abs(dy), 1e-9))
    return corner[0] + dx * part, corner[1] + dy * part


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")


def _style() -> str:
    rules = [
        f"text{{font:13px {FONT};white-space:pre}}",
        ".name{font-size:16px;font-weight:700}",
        ".id,.head,.title{font-weight:600}",
        ".title,.note,.label,.place{font-size:12px}",
        ".kind{font-size:10.5px}",
        "rect{stroke-width:1.5}",
        ".aside rect{stroke-dasharray:5 4}",
        ".line,.ring{fill:none;stroke-width:1.5}",
        ".at-once{stroke-width:4;stroke-linecap:round}",
    ]
    return f"{_scoped(rules)}{_theme(LIGHT, 0)}@media (prefers-color-scheme:dark){{{_theme(DARK, 2)}}}"


def _scoped(rules: Iterable[str]) -> str:
    """Return the rules limited to this drawing, because a page may contain others."""
    parted = (rule.partition("{") for rule in rules)
    return "".join(
        f"{','.join(f'.atomic-graph {selector}' for selector in selectors.split(','))}{{{rest}"
        for selectors, _, rest in parted
    )


def _theme(base: dict[str, str], place: int) -> str:
    """Return the rules of one colour scheme, whose colours start at this index."""
    ground = base["ground"]
    ink = base["ink"]
    dim = base["dim"]
    line = base["line"]
    rules = [f"text{{fill:{ink}}}", f".note,.place,.label{{fill:{dim}}}"]
    for kind, colours in {**COLOURS, "failure": FAILURE}.items():
        strong = colours[place]
        soft = colours[place + 1]
        rules.append(f".{kind} rect{{stroke:{strong};fill:{soft}}}")
        rules.append(f".{kind} .kind,.{kind} .head,.{kind} .title{{fill:{strong}}}")
    rules += [
        f".frame rect,.pill rect{{fill:{ground}}}",
        f".ground,.under{{fill:{ground};stroke:none}}",
        f".line{{stroke:{line}}}",
        f".tip{{fill:{line}}}",
        f".sign{{fill:{ink}}}",
        f".ring{{stroke:{ink}}}",
        f".failed{{stroke:{FAILURE[place]}}}",
    ]
    return _scoped(rules)
