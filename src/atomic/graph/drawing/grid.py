"""Rows of cells for a web of nodes: the row, order and column of each node.

Longest paths make the rows. The positions of the neighbours give the order in a row.
The columns are as close to those of the neighbours as the boxes allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations, pairwise
from statistics import median

from atomic.graph.drawing.parts import Marker, Sketch, Stroke, marked
from atomic.graph.drawing.tree import Link, Web
from atomic.graph.drawing.words import cut, width

GAP = 3  # between two cells of a row
LONG_LABEL = 32
SWEEPS = 8
# Weights of long edges, and of only edges, to be straight.
PASSING = 8
ONLY = 3
FAR_RIGHT = 10_000


@dataclass(eq=False)
class Cell:
    """A cell of a row: a node, a label, or an edge that passes."""

    row: int
    sketch: Sketch | None = None
    x: int = 0  # the column where the edge enters; while rows are sorted, the index in the row
    above: list[Cell] = field(default_factory=list["Cell"])
    below: list[Cell] = field(default_factory=list["Cell"])
    turns: bool = False  # a back edge starts here and climbs on the right

    @property
    def left(self) -> int:
        return self.sketch.into if self.sketch else 0

    @property
    def right(self) -> int:
        return self.sketch.width - self.sketch.into if self.sketch else 1

    @property
    def shift(self) -> int:
        """Return the distance from the column where the edge enters to where it leaves."""
        return self.sketch.out - self.sketch.into if self.sketch else 0

    @property
    def height(self) -> int:
        return self.sketch.height if self.sketch else 1

    @property
    def pointed(self) -> bool:
        return self.sketch is not None and self.sketch.pointed


@dataclass(eq=False)
class Way:
    """A link as the cells that it passes. A back edge climbs from the last of them to `home`."""

    cells: list[Cell]
    stroke: Stroke = Stroke.PLAIN
    home: Cell | None = None


class Grid:
    """The cells of a web in rows, and the links through them."""

    def __init__(self, web: Web, boxes: dict[str, Sketch], start: Sketch) -> None:
        layers, errors = layers_of(web)
        labelled = {layers[link.from_] for link in web.links if link.label}
        self._rows_of_layers = list(
            accumulate((1 + (layer in labelled) for layer in range(len(web.items) + 2)), initial=0)
        )
        self._layers = layers
        self.rows: list[list[Cell]] = [[] for _ in range(self._rows_of_layers[max(layers.values()) + 2])]
        self.ways: list[Way] = []
        self._nodes = {name: self._add(self._row(name), sketch) for name, sketch in boxes.items()}
        self.start = self._enter(web.start, start)
        for name in errors:
            self._enter(name, marked("on error", Marker.ERROR))
        for link in web.links:
            self._lead(link)
        while not self.rows[-1]:
            self.rows.pop()

    def _row(self, name: str, further: int = 0) -> int:
        return self._rows_of_layers[self._layers[name] + further]

    def _add(self, row: int, sketch: Sketch | None) -> Cell:
        cell = Cell(row, sketch)
        self.rows[row].append(cell)
        return cell

    def _enter(self, name: str, sign: Sketch) -> Cell:
        cell = self._add(self._row(name, -1), sign)
        self._pass(Way([cell]), self._nodes[name])
        return cell

    def _lead(self, link: Link) -> None:
        source = self._nodes[link.from_]
        way = Way([source], Stroke.AT_ONCE if link.at_once else Stroke.PLAIN)
        if link.label:
            self._step(way, self._add(source.row + 1, _label(link.label)))
        if link.to is None:
            end = self._add(self._row(link.from_, 1), marked("end", Marker.END, leaves=False))
            self._pass(way, end)
        elif link.back:
            way.home = self._nodes[link.to]
            way.cells[-1].turns = True
            self.ways.append(way)
        else:
            self._pass(way, self._nodes[link.to])

    def _pass(self, way: Way, target: Cell) -> None:
        """Lead a link through the rows up to its target."""
        for row in range(way.cells[-1].row + 1, target.row):
            self._step(way, self._add(row, None))
        self._step(way, target)
        self.ways.append(way)

    def _step(self, way: Way, cell: Cell) -> None:
        way.cells[-1].below.append(cell)
        cell.above.append(way.cells[-1])
        way.cells.append(cell)

    # order -------------------------------------------------------------------------------------------------

    def order(self) -> None:
        """Find an order of each row with few crossings."""
        best = [list(row) for row in self.rows]
        fewest = FAR_RIGHT**2
        for sweep in range(SWEEPS):
            self._number()
            crossings = sum(_crossings(row) for row in self.rows)
            if crossings < fewest:
                best = [list(row) for row in self.rows]
                fewest = crossings
            self._sweep(down=sweep % 2 == 0)
        self.rows = best

    def _number(self) -> None:
        for row in self.rows:
            for place, cell in enumerate(row):
                cell.x = place

    def _sweep(self, *, down: bool) -> None:
        for row in self.rows if down else reversed(self.rows):
            row.sort(key=_mean_above if down else _mean_below)
            for place, cell in enumerate(row):
                cell.x = place

    # columns -----------------------------------------------------------------------------------------------

    def place(self) -> None:
        """Give every cell its column."""
        for sweep in range(SWEEPS + 1):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                _spread(row, down=down)
        left = min(cell.x - cell.left for row in self.rows for cell in row)
        for row in self.rows:
            for cell in row:
                cell.x -= left

    @property
    def width(self) -> int:
        return max(cell.x + cell.right for row in self.rows for cell in row)


def _label(text: str) -> Sketch:
    text = cut(text, LONG_LABEL)
    sketch = Sketch(width(text), 1, width(text) // 2, width(text) // 2, pointed=False)
    sketch.label(0, 0, text)
    return sketch


def layers_of(web: Web) -> tuple[dict[str, int], list[str]]:
    """Return the layer of each node, from 1, and the nodes that only errors lead to."""
    forward = [(link.from_, link.to) for link in web.links if link.to is not None and not link.back]
    following: dict[str, list[str]] = {name: [] for name in web.items}
    for source, target in forward:
        following[source].append(target)
    layers = dict.fromkeys(web.items, 1)
    for name in web.items:
        for target in following[name]:
            layers[target] = max(layers[target], layers[name] + 1)
    reached = _reached(web.start, following)
    for name in reversed(web.items):
        if name not in reached:  # as low as possible: next to the node where it rejoins the flow
            layers[name] = min((layers[target] for target in following[name]), default=max(layers.values()) + 1) - 1
    targets = {target for _, target in forward}
    return layers, [name for name in web.items if name not in reached and name not in targets]


def _reached(start: str, following: dict[str, list[str]]) -> set[str]:
    reached = {start}
    waiting = [start]
    while waiting:
        for target in following[waiting.pop()]:
            if target not in reached:
                reached.add(target)
                waiting.append(target)
    return reached


def _mean_above(cell: Cell) -> float:
    return sum(other.x for other in cell.above) / len(cell.above) if cell.above else cell.x


def _mean_below(cell: Cell) -> float:
    places = [other.x for other in cell.below] + [FAR_RIGHT] * cell.turns
    return sum(places) / len(places) if places else cell.x


def _crossings(row: Sequence[Cell]) -> int:
    ways = [(cell.x, other.x) for cell in row for other in cell.below]
    ways += [(cell.x, FAR_RIGHT) for cell in row if cell.turns]
    return sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ways, 2))


def _wanted(cell: Cell, *, down: bool) -> float:
    columns = (
        [other.x + other.shift for other in cell.above] if down else [other.x - cell.shift for other in cell.below]
    )
    return median(columns) if columns else cell.x


def _weight(cell: Cell, *, down: bool) -> int:
    """Return how important it is that the edge to this cell is straight."""
    if cell.sketch is None:
        return PASSING
    others = cell.above if down else cell.below
    only = len(others) == 1 and len(others[0].below if down else others[0].above) == 1
    return ONLY if only and others[0].above else 1


def _spread(row: Sequence[Cell], *, down: bool) -> None:
    """Put each cell as close to its wanted column as the others allow.

    This is an isotonic regression by medians.
    """
    firsts = list(accumulate((a.right + GAP + b.left for a, b in pairwise(row)), initial=0))
    blocks: list[tuple[list[float], int]] = []  # wanted starts, each repeated by its weight; number of cells
    for cell, first in zip(row, firsts, strict=True):
        wishes = [_wanted(cell, down=down) - first] * _weight(cell, down=down)
        count = 1
        while blocks and median(blocks[-1][0]) > median(wishes):
            others, more = blocks.pop()
            wishes, count = others + wishes, count + more
        blocks.append((wishes, count))
    begins = [round(median(wishes)) for wishes, count in blocks for _ in range(count)]
    for cell, first, begin in zip(row, firsts, begins, strict=True):
        cell.x = first + begin
