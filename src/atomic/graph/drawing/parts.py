"""The parts of a laid-out drawing: boxes, lines and labels in a grid of cells.

A `Sketch` is a part of a drawing, with a column where the flow enters at its top and
one where it leaves at its bottom. Sketches are combined without changing their
contents. `Sketch.flat` returns all parts with their positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from atomic.graph.drawing.words import width

Point = tuple[int, int]


class Shape(StrEnum):
    """The look of a box."""

    BOX = "box"  # a node that runs
    BAR = "bar"  # the head of branches, which start at its lower row
    FRAME = "frame"  # around other parts
    ASIDE = "aside"  # next to the flow: runs after a failure


class Stroke(StrEnum):
    """The look of a line."""

    PLAIN = "plain"
    AT_ONCE = "at-once"  # one of several edges that are followed at the same time


class Marker(StrEnum):
    """A label with a sign."""

    NONE = ""
    START = "start"
    END = "end"
    ERROR = "error"


@dataclass(frozen=True)
class Box:
    """A rectangle with a title in its upper border and lines of text inside."""

    width: int
    height: int
    shape: Shape
    kind: str
    title: str = ""
    lines: tuple[str, ...] = ()
    path: str = ""  # the id of its node


@dataclass(frozen=True)
class Line:
    """A line through the cells of its points. An arrow takes the last one."""

    points: tuple[Point, ...]
    stroke: Stroke = Stroke.PLAIN
    arrow: bool = False


@dataclass(frozen=True)
class Label:
    """Text on or next to a line."""

    text: str
    marker: Marker = Marker.NONE


Part = Box | Line | Label


@dataclass
class Sketch:
    """A part of a drawing."""

    width: int
    height: int
    into: int = 0  # the column where the flow enters
    out: int = 0  # the column where it leaves
    leaves: bool = True  # False: the flow does not leave
    pointed: bool = True  # an arrow shows where the flow enters
    joins: bool = False  # it ends where branches join, not with a border
    parts: list[tuple[int, int, Part | Sketch]] = field(default_factory=list["tuple[int, int, Part | Sketch]"])

    def add(self, x: int, y: int, part: Part | Sketch) -> None:
        self.parts.append((x, y, part))

    def line(self, *points: Point, stroke: Stroke = Stroke.PLAIN, arrow: bool = False) -> None:
        self.add(0, 0, Line(points, stroke, arrow))

    def label(self, x: int, y: int, text: str, marker: Marker = Marker.NONE) -> None:
        if text:
            self.add(x, y, Label(text, marker))

    def flat(self) -> Iterator[tuple[int, int, Part]]:
        """Yield all parts with their positions, also of inner sketches."""
        stack: list[tuple[int, int, Part | Sketch]] = [(0, 0, self)]
        while stack:
            x, y, part = stack.pop()
            if isinstance(part, Sketch):
                stack.extend((x + dx, y + dy, inner) for dx, dy, inner in reversed(part.parts))
            else:
                yield x, y, part


def marked(text: str, marker: Marker, *, leaves: bool = True) -> Sketch:
    """Return a sketch with a sign on the flow and its text to the right, such as the
    start.
    """
    sketch = Sketch(width(text) + 2, 1, leaves=leaves)
    sketch.label(0, 0, text, marker)
    return sketch


def stem() -> Sketch:
    """Return a plain line."""
    sketch = Sketch(1, 1, pointed=False)
    sketch.line((0, 0), (0, 0))
    return sketch


def column(sketches: Sequence[Sketch], limit: int) -> Sketch:
    """Put sketches one below the other and connect them, straight where the limit
    allows it.
    """
    places = _places(sketches, limit)
    first = sketches[0]
    last = sketches[-1]
    whole = Sketch(
        max(x + sketch.width for x, sketch in zip(places, sketches, strict=True)), 0,
        places[0] + first.into, places[-1] + last.out, last.leaves, first.pointed,
    )  # fmt: skip
    for number, (x, sketch) in enumerate(zip(places, sketches, strict=True)):
        if number:
            before = sketches[number - 1]
            _connect(whole, before, places[number - 1] + before.out, sketch, x + sketch.into)
        whole.add(x, whole.height, sketch)
        whole.height += sketch.height
    return whole


def _places(sketches: Sequence[Sketch], limit: int) -> list[int]:
    """Return the left ends: every edge straight if that fits, else as straight as
    possible.
    """
    places = [0]
    for before, after in pairwise(sketches):
        places.append(places[-1] + before.out - after.into)
    left = min(places)
    over = max(x - left + sketch.width for x, sketch in zip(places, sketches, strict=True)) - limit
    left += max(0, over) // 2
    return [
        max(0, min(x - left, limit - s.width)) if over > 0 else x - left for x, s in zip(places, sketches, strict=True)
    ]


def _connect(whole: Sketch, before: Sketch, start: int, after: Sketch, end: int) -> None:
    y = whole.height
    if not before.leaves:
        whole.height += 1
        return
    whole.height += 1 if start == end else 2
    turns = [] if start == end else [(start, y), (end, y)]
    whole.line((start, y - 1), *turns, (end, whole.height - after.pointed), arrow=after.pointed)
