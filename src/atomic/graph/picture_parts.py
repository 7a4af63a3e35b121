"""What a laid-out picture is made of: boxes, lines and labels in a grid of cells.

A `Sketch` is a piece of picture with a column where the flow comes in at its top and one where it goes out at its
bottom. Sketches are put together without touching what is in them; `Sketch.flat` gives the parts in their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from atomic.graph.picture_words import width

Point = tuple[int, int]


class Shape(StrEnum):
    """How a box looks."""

    BOX = "box"  # a node that runs
    BAR = "bar"  # the head of branches: two rows, they begin at the lower one
    FRAME = "frame"  # around what is inside
    ASIDE = "aside"  # beside the flow: it runs when something failed


class Stroke(StrEnum):
    """How a line looks."""

    PLAIN = "plain"
    AT_ONCE = "at-once"  # one of several ways that are taken together


class Marker(StrEnum):
    """A label that stands for a place."""

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
    path: str = ""  # the id of what it stands for


@dataclass(frozen=True)
class Line:
    """A way through the cells of its points; an arrow takes the last one."""

    points: tuple[Point, ...]
    stroke: Stroke = Stroke.PLAIN
    arrow: bool = False


@dataclass(frozen=True)
class Label:
    """Words on a line or beside one."""

    text: str
    marker: Marker = Marker.NONE


Part = Box | Line | Label


@dataclass
class Sketch:
    """A piece of a picture."""

    width: int
    height: int
    into: int = 0  # the column where the flow comes in
    out: int = 0  # the column where it goes out
    leaves: bool = True  # False: no way goes out at the bottom
    pointed: bool = True  # an arrow shows where the flow comes in
    joins: bool = False  # it ends where branches meet, not with a border
    parts: list[tuple[int, int, Part | Sketch]] = field(default_factory=list["tuple[int, int, Part | Sketch]"])

    def add(self, x: int, y: int, part: Part | Sketch) -> None:
        self.parts.append((x, y, part))

    def line(self, *points: Point, stroke: Stroke = Stroke.PLAIN, arrow: bool = False) -> None:
        self.add(0, 0, Line(points, stroke, arrow))

    def label(self, x: int, y: int, text: str, marker: Marker = Marker.NONE) -> None:
        if text:
            self.add(x, y, Label(text, marker))

    def flat(self) -> Iterator[tuple[int, int, Part]]:
        """All parts with their places, those of inner sketches too."""
        stack: list[tuple[int, int, Part | Sketch]] = [(0, 0, self)]
        while stack:
            x, y, part = stack.pop()
            if isinstance(part, Sketch):
                stack.extend((x + dx, y + dy, inner) for dx, dy, inner in reversed(part.parts))
            else:
                yield x, y, part


def marked(text: str, marker: Marker, *, leaves: bool = True) -> Sketch:
    """A place with a name, like the start: its sign is on the flow, the name right of it."""
    sketch = Sketch(width(text) + 2, 1, leaves=leaves)
    sketch.label(0, 0, text, marker)
    return sketch


def stem() -> Sketch:
    """A way on, with nothing on it."""
    sketch = Sketch(1, 1, pointed=False)
    sketch.line((0, 0), (0, 0))
    return sketch


def column(sketches: Sequence[Sketch], limit: int) -> Sketch:
    """One below the other, connected where the upper one leads on; straight where the limit allows it."""
    places = _places(sketches, limit)
    first, last = sketches[0], sketches[-1]
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
    """The left ends: every way straight if that fits, else each as near to that as it can be."""
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
