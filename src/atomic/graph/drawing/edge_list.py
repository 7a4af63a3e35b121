"""List nodes and edges of a web: each node with the nodes before it and its targets."""

from __future__ import annotations

from collections.abc import Callable

from atomic.graph.drawing.parts import Marker, Sketch, Stroke
from atomic.graph.drawing.tree import Item, Link, Web
from atomic.graph.drawing.words import clean, cut, width

STEM = 2  # the column of the line from which a node's edges branch off
LONGEST = 72  # the width that a line of text may claim


def list_sketch(web: Web, limit: int, lay: Callable[[Item, int], Sketch]) -> Sketch:
    """Lay out the nodes one below the other in flow order, each with its edges below."""
    sketch = Sketch(0, 0, leaves=False, pointed=False)
    longest = min(limit, LONGEST)
    _write(sketch, 0, cut(f"start → {clean(web.start)}", longest - 2), Marker.START)
    sketch.height += 1
    arriving: dict[str | None, list[str]] = {}
    leaving: dict[str, list[Link]] = {}
    for link in web.links:
        arriving.setdefault(link.to, []).append(clean(link.from_))
        leaving.setdefault(link.from_, []).append(link)
    for name, item in web.items.items():
        if name in arriving:
            _write(sketch, 0, cut(f"from {', '.join(dict.fromkeys(arriving[name]))}", longest))
        elif name != web.start:
            _write(sketch, 0, "on error", Marker.ERROR)
        box = lay(item, limit)
        sketch.add(0, sketch.height, box)
        sketch.height += box.height
        sketch.width = max(sketch.width, box.width)
        _add_edges(sketch, box, leaving[name], longest)
        sketch.height += 1
    sketch.height -= 1
    return sketch


def _write(sketch: Sketch, x: int, text: str, marker: Marker = Marker.NONE) -> None:
    """Add a row with this text."""
    sketch.label(x, sketch.height, text, marker)
    sketch.width = max(sketch.width, x + width(text) + (2 if marker else 0))
    sketch.height += 1


def _add_edges(sketch: Sketch, box: Sketch, links: list[Link], limit: int) -> None:
    """Add the edges of the last box, each in a row with its label and its target."""
    top = sketch.height - 1
    stem = min(STEM, box.width - 2)
    if box.joins and box.leaves:
        sketch.line((box.out, top), (box.out, top + 1), (stem, top + 1))
        sketch.height += 1
        top += 1
    for link in links:
        label = cut(link.label, limit // 2 - stem)
        arrow = stem + (width(label) + 5 if label else 2)
        stroke = Stroke.AT_ONCE if link.at_once else Stroke.PLAIN
        sketch.line((stem, top), (stem, sketch.height), (arrow, sketch.height), stroke=stroke, arrow=True)
        sketch.label(stem + 3, sketch.height, label)
        target = "end"
        if link.to is not None:
            target = f"{clean(link.to)} ↑" if link.back else clean(link.to)
        _write(sketch, arrow + 2, cut(target, limit - arrow - 2))
