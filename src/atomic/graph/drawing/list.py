"""List nodes and edges, for webs that are too wide to draw. Each node names its targets."""

from __future__ import annotations

from collections.abc import Callable

from atomic.graph.drawing.parts import Marker, Sketch, Stroke
from atomic.graph.drawing.tree import Item, Link, Web
from atomic.graph.drawing.words import clean, cut, width

STEM = 2  # the column of the line from which a node's edges branch off


def list_sketch(web: Web, limit: int, lay: Callable[[Item, int], Sketch], start: Sketch) -> Sketch:
    """Lay out the nodes one below the other in flow order, each with its edges below."""
    sketch = Sketch(limit, 0, leaves=False, pointed=start.pointed)
    sketch.label(0, 0, cut(f"start → {clean(web.start)}", limit - 2), Marker.START)
    sketch.height = 2
    arriving: dict[str | None, list[str]] = {}
    leaving: dict[str, list[Link]] = {}
    for link in web.links:
        arriving.setdefault(link.to, []).append(clean(link.from_))
        leaving.setdefault(link.from_, []).append(link)
    for name, item in web.items.items():
        _arrivals(sketch, arriving.get(name, []), limit, first=name == web.start)
        box = lay(item, limit)
        sketch.add(0, sketch.height, box)
        sketch.height += box.height
        _departures(sketch, box, leaving[name], limit)
        sketch.height += 1
    sketch.height -= 1
    return sketch


def _arrivals(sketch: Sketch, sources: list[str], limit: int, *, first: bool) -> None:
    if sources:
        sketch.label(0, sketch.height, cut(f"from {', '.join(dict.fromkeys(sources))}", limit))
        sketch.height += 1
    elif not first:
        sketch.label(0, sketch.height, "on error", Marker.ERROR)
        sketch.height += 1


def _departures(sketch: Sketch, box: Sketch, links: list[Link], limit: int) -> None:
    top = sketch.height - 1
    stem = min(STEM, box.width - 2)
    if box.joins and box.leaves:
        sketch.line((box.out, top), (box.out, top + 1), (stem, top + 1))
        sketch.height, top = sketch.height + 1, top + 1
    for link in links:
        stroke = Stroke.AT_ONCE if link.at_once else Stroke.PLAIN
        label = cut(link.label, limit // 2 - stem)
        arrow = stem + (width(label) + 5 if label else 2)
        sketch.line((stem, top), (stem, sketch.height), (arrow, sketch.height), stroke=stroke, arrow=True)
        sketch.label(stem + 3, sketch.height, label)
        sketch.label(arrow + 2, sketch.height, cut(_target(link), limit - arrow - 2))
        sketch.height += 1


def _target(link: Link) -> str:
    return "end" if link.to is None else f"{clean(link.to)}{' ↑' if link.back else ''}"
