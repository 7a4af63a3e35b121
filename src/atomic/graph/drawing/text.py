"""Draw a graph as text with box-drawing characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from atomic.graph.drawing.layout import layout
from atomic.graph.drawing.parts import Box, Label, Line, Marker, Point, Shape, Stroke
from atomic.graph.drawing.tree import tree_of, walk_ids
from atomic.graph.drawing.words import clean, cut, pieces, width

if TYPE_CHECKING:
    from atomic.graph.engine.compiled import CompiledGraph

__all__ = ["to_text", "walk_ids"]

NARROWEST = 40
SIGNS = {Marker.START: "●", Marker.END: "◉", Marker.ERROR: "✗"}
ARROWS = {(0, 1): "▼", (0, -1): "▲", (-1, 0): "◄", (1, 0): "►"}
UP = 1
DOWN = 2
LEFT = 4
RIGHT = 8
SIDE = {(0, -1): UP, (0, 1): DOWN, (-1, 0): LEFT, (1, 0): RIGHT}
ALONG = UP | DOWN
ACROSS = LEFT | RIGHT
# The character of a cell by the sides that its lines touch: none, up, down, both, left,
# left and up …
LIGHT = " │││─╯╮┤─╰╭├─┴┬┼"
HEAVY = " │││━┙┑┥━┕┍┝━┷┯┿"
DOUBLE = " │││═╛╕╡═╘╒╞═╧╤╪"
REPEATED = frozenset(("map", "tasks"))  # nodes that run once for each item have a double frame


def to_text(compiled: CompiledGraph[Any], columns: int = 100, *, signs: Mapping[str, str] = {}) -> str:
    """Return the graph as text in at most this many columns, but never fewer than 40.

    `signs` are single characters to show in front of nodes, by id; the id in a subgraph
    is `outer/inner`.
    """
    limit = max(columns, NARROWEST)
    head = ": ".join(clean(text) for text in (compiled.name, compiled.description) if text)
    lines = [cut(head, limit), ""] if head else []
    sketch = layout(tree_of(compiled), limit)
    canvas = _Canvas(sketch.width, sketch.height, signs)
    order = {Box: 0, Line: 1, Label: 2}  # text covers lines
    for x, y, part in sorted(sketch.flat(), key=lambda placed: order[type(placed[2])]):
        canvas.paint(x, y, part)
    return "\n".join([*lines, *canvas.rows()]) + "\n"


def _sign(sides: int, passed: int, signs: str, word: str | None) -> str:
    if word is not None:
        return word
    crossing = not sides and passed == ALONG | ACROSS
    return "│" if crossing else signs[sides | passed]  # crossing edges do not join


class _Canvas:
    """A grid of cells.

    Lines are kept as the sides that they touch, so that they join correctly.
    """

    def __init__(self, width: int, height: int, signs: Mapping[str, str]) -> None:
        self._signs_of_nodes = signs
        self._sides = [[0] * width for _ in range(height)]
        self._passed = [[0] * width for _ in range(height)]  # by lines that neither end nor turn here
        self._signs = [[LIGHT] * width for _ in range(height)]
        self._words: list[list[str | None]] = [[None] * width for _ in range(height)]

    def paint(self, x: int, y: int, part: Box | Line | Label) -> None:
        match part:
            case Box():
                self._box(x, y, part)
            case Line():
                self._line([(x + dx, y + dy) for dx, dy in part.points], part)
            case Label():
                self._label(x, y, part)

    def rows(self) -> Iterable[str]:
        for cells in zip(self._sides, self._passed, self._signs, self._words, strict=True):
            yield "".join(map(_sign, *cells)).rstrip()

    def _box(self, x: int, y: int, box: Box) -> None:
        across, side, corners = _border(box)
        bottom = y + box.height - 1
        title = f" {box.title} " if box.title else ""
        self._write(x, y, corners[0] + across + title + across * (box.width - 3 - width(title)) + corners[1])
        for row in range(y + 1, bottom):
            self._write(x, row, side)
            self._write(x + box.width - 1, row, side)
        for row, line in enumerate(box.lines, y + 1):
            self._write(x + 2, row, line)
        if box.shape not in (Shape.FRAME, Shape.BAR):  # nodes inside have their own signs
            self._write(x + 1, y + 1, self._signs_of_nodes.get(box.path, " "))
        self._bottom(x, bottom, box)

    def _bottom(self, x: int, y: int, box: Box) -> None:
        across, _, corners = _border(box)
        heavy = box.shape is Shape.BAR and box.kind == "parallel"
        left, right = ("┕", "┙") if heavy else (corners[2], corners[3])
        self._write(x, y, left)
        self._write(x + box.width - 1, y, right)
        if box.shape is Shape.ASIDE:  # no edge leaves it
            self._write(x + 1, y, across * (box.width - 2))
        signs = DOUBLE if across == "═" else LIGHT
        if heavy:
            signs = HEAVY
        for column in range(x + 1, x + box.width - 1):
            self._touch(column, y, ACROSS, signs)

    def _line(self, points: list[Point], line: Line) -> None:
        signs = HEAVY if line.stroke is Stroke.AT_ONCE else LIGHT
        step = (0, 0)
        for start, end in pairwise(points):
            if start != end:
                step = self._stretch(start, end, signs)
        if step == (0, 0):
            self._touch(*points[0], ALONG, signs)
        if line.arrow:
            self._write(*points[-1], ARROWS[step if step != (0, 0) else (0, 1)])

    def _stretch(self, start: Point, end: Point, signs: str) -> Point:
        x, y = start
        end_x, end_y = end
        step = (end_x > x) - (end_x < x), (end_y > y) - (end_y < y)
        self._touch(x, y, SIDE[step], signs)
        x, y = x + step[0], y + step[1]
        while (x, y) != end:
            sides = ACROSS if step[0] else ALONG
            self._passed[y][x] |= sides
            self._choose(x, y, sides, signs)
            x, y = x + step[0], y + step[1]
        self._touch(x, y, SIDE[-step[0], -step[1]], signs)
        return step

    def _touch(self, x: int, y: int, side: int, signs: str) -> None:
        self._sides[y][x] |= side
        self._choose(x, y, side, signs)

    def _choose(self, x: int, y: int, sides: int, signs: str) -> None:
        if sides & ACROSS and self._signs[y][x] is LIGHT:  # the heavier line wins
            self._signs[y][x] = signs

    def _label(self, x: int, y: int, label: Label) -> None:
        if label.marker:
            self._write(x, y, f"{SIGNS[label.marker]} {label.text}")
            return
        self._write(x, y, label.text)
        for beside in (x - 1, x + width(label.text)):
            if 0 <= beside < len(self._sides[y]) and self._sides[y][beside] | self._passed[y][beside] == ACROSS:
                self._write(beside, y, " ")  # keep a space between lines and text

    def _write(self, x: int, y: int, text: str) -> None:
        row = self._words[y]
        for sign, cells in pieces(text):
            row[x : x + cells] = [sign, *[""] * (cells - 1)]
            x += cells


def _border(box: Box) -> tuple[str, str, str]:
    """Return the horizontal and vertical characters of a box, and its corners."""
    match box.shape:
        case Shape.ASIDE:
            return "╌", "╎", "┌┐└┘"
        case Shape.FRAME if box.kind in REPEATED:
            return "═", "║", "╔╗╚╝"
        case Shape.FRAME:
            return "─", "│", "╭╮╰╯"
        case _:
            return "─", "│", "┌┐└┘"
