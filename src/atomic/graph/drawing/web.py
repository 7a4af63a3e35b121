"""Draw nodes and edges in rows, with every edge except back edges leading down.

Between two rows each node's edges have their own track, so that two edges never look
like one. Back edges climb in lanes on the right. A web that is too wide becomes a list
in which each node names its targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from atomic.graph.drawing.grid import Cell, Grid, Way
from atomic.graph.drawing.list import list_sketch
from atomic.graph.drawing.parts import Point, Sketch, Stroke
from atomic.graph.drawing.tree import Item, Web

LANE = 3  # between two back edges
MANY = 200  # a web with more nodes becomes a list
MANY_CELLS = 2_000
NARROW = 14

Lay = Callable[[Item, int], Sketch]


def web_sketch(web: Web, limit: int, lay: Lay, start: Sketch) -> Sketch:
    """Lay out the web in at most `limit` columns. `start` goes above its first node."""
    for share in (limit, limit // 2, limit // 3) if len(web.items) <= MANY else ():
        sketch = _in_rows(web, {name: lay(item, max(share, NARROW)) for name, item in web.items.items()}, start)
        if sketch is not None and sketch.width <= limit:
            return sketch
    return list_sketch(web, limit, lay, start)


def _in_rows(web: Web, boxes: dict[str, Sketch], start: Sketch) -> Sketch | None:
    grid = Grid(web, boxes, start)
    if sum(map(len, grid.rows)) > MANY_CELLS:
        return None
    grid.order()
    grid.place()
    return _Router(grid).sketch()


@dataclass(eq=False)
class _Bundle:
    """Edges between two rows that may share a track: they have one source or one target."""

    sources: set[Cell] = field(default_factory=set[Cell])
    targets: set[Cell] = field(default_factory=set[Cell])
    columns: list[int] = field(default_factory=list[int])
    track: int = -1  # -1: straight down, without a track

    @property
    def bends(self) -> bool:
        return len(set(self.columns)) > 1


class _Channel:
    """The space between two rows."""

    def __init__(self) -> None:
        self.bundles: dict[Cell, _Bundle] = {}  # by source; back edges are in `homes` by target
        self.homes: dict[Cell, _Bundle] = {}
        self.tracks = 0
        self.top = 0

    def down(self, source: Cell, target: Cell) -> None:
        self.out(source, target.x)
        self.bundles[source].targets.add(target)

    def out(self, source: Cell, column: int) -> None:
        bundle = self.bundles.setdefault(source, _Bundle({source}))
        bundle.columns += [source.x + source.shift, column]

    def home(self, target: Cell, lane: int) -> None:
        bundle = self.homes.setdefault(target, _Bundle(targets={target}))
        bundle.columns += [target.x, lane]

    def assign(self) -> bool:
        """Give each bundle that bends a track. Return False if that is not possible."""
        self._gather()
        waiting = [bundle for bundle in self._all() if bundle.bends]
        placed: list[_Bundle] = []
        while waiting:
            ready = next(
                (b for b in waiting if not any(_before(other, b) for other in waiting if other is not b)), None
            )
            if ready is None:
                return False
            waiting.remove(ready)
            ready.track = _free_track(ready, placed)
            placed.append(ready)
        self.tracks = 1 + max((bundle.track for bundle in placed), default=-1)
        return True

    def _all(self) -> Iterable[_Bundle]:
        return dict.fromkeys([*self.bundles.values(), *self.homes.values()])

    def _gather(self) -> None:
        """Let cells whose only edge leads to the same target share a track."""
        shared = dict(self.homes)
        for source, bundle in self.bundles.items():
            if len(bundle.targets) == 1 and len(bundle.columns) == 2:
                (target,) = bundle.targets
                common = shared.setdefault(target, bundle)
                if common is not bundle:
                    common.sources |= bundle.sources
                    common.columns += bundle.columns
                    self.bundles[source] = common


def _before(first: _Bundle, second: _Bundle) -> bool:
    """Return whether the first bundle must turn above the second.

    It must if it comes from a column in which the second goes down.
    """
    ends = {target.x for target in second.targets}
    return any(source.x + source.shift in ends for source in first.sources)


def _free_track(bundle: _Bundle, placed: Iterable[_Bundle]) -> int:
    others = list(placed)
    track = 1 + max((other.track for other in others if _before(other, bundle)), default=-1)
    left = min(bundle.columns) - 1
    right = max(bundle.columns) + 1
    while any(o.track == track and min(o.columns) <= right and max(o.columns) >= left for o in others):
        track += 1
    return track


class _Router:
    """Leads the edges of a grid from cell to cell."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._channels = [_Channel() for _ in grid.rows]  # the space below each row
        self._lanes = _lanes(grid.ways, grid.width + 1)
        self._tops: list[int] = []

    def sketch(self) -> Sketch | None:
        for way in self._grid.ways:
            self._announce(way)
        if not all(channel.assign() for channel in self._channels):
            return None
        self._measure()
        width = max([self._grid.width, *(lane + 1 for lane in self._lanes.values())])
        start = self._grid.start.x
        sketch = Sketch(width, self._bottom, start, start, leaves=False, pointed=self._grid.start.pointed)
        for row, top in zip(self._grid.rows, self._tops, strict=True):
            for cell in row:
                if cell.sketch is not None:
                    sketch.add(cell.x - cell.left, top, cell.sketch)
        for way in self._grid.ways:
            self._draw(sketch, way)
        return sketch

    def _announce(self, way: Way) -> None:
        for source, target in pairwise(way.cells):
            self._channels[source.row].down(source, target)
        if way.home is not None:
            self._channels[way.cells[-1].row].out(way.cells[-1], self._lanes[way])
            self._channels[way.home.row - 1].home(way.home, self._lanes[way])

    def _measure(self) -> None:
        """Compute where each row starts: below the tracks and the arrows."""
        y = 0
        for number, (row, channel) in enumerate(zip(self._grid.rows, self._channels, strict=True)):
            self._tops.append(y)
            channel.top = y + max(cell.height for cell in row)
            following = self._grid.rows[number + 1] if number + 1 < len(self._grid.rows) else []
            y = channel.top + channel.tracks + any(cell.pointed for cell in following)
        self._bottom = y

    def _draw(self, sketch: Sketch, way: Way) -> None:
        stroke = way.stroke
        for source, target in pairwise(way.cells):
            points = [self._foot(source), *self._turns(source, target), self._head(target)]
            sketch.line(*points, stroke=stroke, arrow=target.pointed)
            stroke = Stroke.PLAIN  # only the first part shows whether all edges are followed
        if way.home is not None:
            *turns, home, head = self._way_back(way, way.home)
            sketch.line(*turns, home, head, arrow=True)
            # A second arrow shows that this edge comes back.
            sketch.line(turns[-1], (home[0] + 1, home[1]), arrow=True)

    def _turns(self, source: Cell, target: Cell) -> list[Point]:
        channel = self._channels[source.row]
        track = channel.bundles[source].track
        y = channel.top + track
        return [(source.x + source.shift, y), (target.x, y)] if track >= 0 else []

    def _way_back(self, way: Way, home: Cell) -> list[Point]:
        last = way.cells[-1]
        lane = self._lanes[way]
        below = self._channels[last.row]
        above = self._channels[home.row - 1]
        y = below.top + below.bundles[last].track
        home_y = above.top + above.homes[home].track
        turns = [(last.x + last.shift, y), (lane, y), (lane, home_y), (home.x, home_y)]
        return [self._foot(last), *turns, self._head(home)]

    def _foot(self, cell: Cell) -> Point:
        return cell.x + cell.shift, self._tops[cell.row] + (cell.height - 1 if cell.sketch else 0)

    def _head(self, cell: Cell) -> Point:
        return cell.x, self._tops[cell.row] - (1 if cell.pointed else 0)


def _lanes(ways: Iterable[Way], first: int) -> dict[Way, int]:
    """Return the columns of back edges: shorter ones further in, without overlaps."""
    climbing = [(way.cells[-1].row, way.home.row - 1, way) for way in ways if way.home is not None]
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[Way, int] = {}
    for bottom, top, way in sorted(climbing, key=lambda climb: climb[0] - climb[1]):
        free = (n for n, spans in enumerate(taken) if all(top > low or bottom < high for high, low in spans))
        number = next(free, len(taken))
        if number == len(taken):
            taken.append([])
        taken[number].append((top, bottom))
        lanes[way] = first + LANE * number
    return lanes
