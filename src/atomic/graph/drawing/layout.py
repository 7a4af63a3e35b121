"""Lay out the tree of a graph as boxes and lines in cells that fit a width.

The flow goes down. Branches are side by side if that fits without cutting ids, else
stacked between two rails. If the nesting leaves no space for text, inner frames lose
their sides. The nodes of a web are a list, each with its edges below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from atomic.graph.drawing.parts import Box, Marker, Shape, Sketch, Stroke, column, marked, stem
from atomic.graph.drawing.tree import Chain, Flow, Fork, Frame, Item, Link, Step, Web
from atomic.graph.drawing.words import clean, cut, width
from atomic.graph.engine.node import NodeKind

GAP = 3  # between two branches
RAILS = 6  # the width of the rails of stacked branches
SIDES = 4  # the sides of a frame, each with a space
WAY_BACK = 3  # the width of a loop's back edge
AGAIN = 13  # its distance from the flow, with space for its label
WAY_OUT = 9  # the distance from the flow of an edge that leaves a loop in its middle
NARROWEST = 7  # of a branch: its label needs space on both sides
LEAST = 20  # below this width frames have no sides
WORDY = 72  # the width that a title or a row may claim; a longer one is cut to fit
LONG_ID = 24  # ids may be cut to this before branches are stacked
ENDLESS = 1_000_000
STEM = 2  # in a list of edges: the column of the line from which a node's edges branch off


def layout(flow: Flow, limit: int) -> Sketch:
    """Lay out the whole drawing, from start to end, in at most `limit` columns."""
    body = _Layout().flow(flow, limit)
    if isinstance(flow, Web):
        return body
    parts = [marked("start", Marker.START), body]
    if body.leaves:
        parts.append(marked("end", Marker.END, leaves=False))
    return column(parts, limit)


class _Layout:
    """One layout. Parts that need no limit are laid out once and reused."""

    def __init__(self) -> None:
        self._free: dict[Item | Flow, Sketch] = {}
        self._tight: dict[Item | Flow, int] = {}

    def item(self, item: Item, limit: int) -> Sketch:
        """Lay out one node within the limit."""
        if item not in self._free:
            self._free[item] = self._item(item, ENDLESS)
        free = self._free[item]
        return free if free.width <= limit else self._item(item, limit)

    def flow(self, flow: Flow, limit: int) -> Sketch:
        """Lay out the inside of a node within the limit."""
        if flow not in self._free:
            self._free[flow] = self._flow(flow, ENDLESS)
        free = self._free[flow]
        return free if free.width <= limit else self._flow(flow, limit)

    def _item(self, item: Item, limit: int) -> Sketch:
        match item:
            case Step():
                return _step(item, limit)
            case Frame():
                return self._frame(item, limit)
            case Fork():
                return self._fork(item, limit)

    def _flow(self, flow: Flow, limit: int) -> Sketch:
        if isinstance(flow, Web):
            return _list(flow, limit, self.item)
        sketches = [self.item(item, limit) for item in flow.items] or [stem()]
        if flow.catcher is not None:
            sketches.append(self._aside(flow.catcher, limit, leaves=sketches[-1].leaves))
        return column(sketches, limit)

    def tight(self, thing: Item | Flow) -> int:
        """Return the smallest width at which ids of common length are complete."""
        if thing not in self._tight:
            self._tight[thing] = self._tightest(thing)
        return self._tight[thing]

    def _tightest(self, thing: Item | Flow) -> int:
        match thing:
            case Step(id=id, word=word):
                return max(width(word) + 6, min(width(id), LONG_ID) + 4)
            case Frame(title=title, body=body):
                return max(min(width(title), LONG_ID) + 6, self.tight(body) + SIDES + WAY_BACK)
            case Fork(title=title, branches=branches):
                inside = max((self.tight(chain) for _, chain in branches), default=0)
                return max(min(width(title), LONG_ID) + 6, inside + RAILS)
            case Chain(items=items, catcher=catcher):
                beside = 0 if catcher is None else self.tight(catcher) + SIDES + 2
                return max([beside, 8, *map(self.tight, items)])
            case Web(items=items):
                return max([24, *map(self.tight, items.values())])

    def _frame(self, frame: Frame, limit: int) -> Sketch:
        if limit < LEAST:
            ending = "repeat" if frame.kind is NodeKind.LOOP else "end"
            return column([_bar(frame, limit), self.flow(frame.body, limit), _closing(ending, frame, limit)], limit)
        body, back = self._inside(frame, limit - SIDES)
        inside = body.width
        if back is not None:
            inside = min(max(body.width + WAY_BACK, back + AGAIN), limit - SIDES)
        title, lines = _head(frame, inside + SIDES, limit)
        whole = max(inside + SIDES, _needed(title, lines))
        x = max(2, min(whole // 2 - body.into, whole - 2 - inside))
        top = len(lines) + (1 if body.pointed else 0)
        height = top + body.height + (2 if back is None else 3)
        sketch = Sketch(whole, height, x + body.into, x + body.out)
        sketch.add(0, 0, Box(whole, height, Shape.FRAME, str(frame.kind), title, lines, frame.path))
        sketch.line((sketch.into, top if lines else 0), (sketch.into, top), arrow=body.pointed)
        sketch.add(x, top + 1, body)
        if back is not None:
            # The back edge: from below the body, right of it, to above it.
            right = x + inside - 2
            bottom = height - 2
            points = [(x + back, bottom - 1), (x + back, bottom), (right, bottom), (right, top), (sketch.into + 1, top)]
            sketch.line(*points, arrow=True)
            if right - x - back >= AGAIN - 2:
                sketch.label((x + back + right) // 2 - 2, bottom, "again")
        if isinstance(frame.body, Chain) and body.leaves:
            sketch.line((sketch.out, top + body.height), (sketch.out, height - 1))
        return sketch

    def _inside(self, frame: Frame, limit: int) -> tuple[Sketch, int | None]:
        """Lay out the inside of a frame.

        Return also the start column of a loop's back edge.
        """
        if frame.kind is not NodeKind.LOOP:
            return self.flow(frame.body, limit), None
        limit -= WAY_BACK
        if (
            frame.asked
            and isinstance(frame.body, Chain)
            and (midway := self._asked_midway(frame.body, frame.asked, limit))
        ):
            return midway
        body = self.flow(frame.body, limit)
        return body, body.out if body.leaves else None

    def _asked_midway(self, body: Chain, asked: int, limit: int) -> tuple[Sketch, int | None] | None:
        """Lay out a loop that is left in its middle, or return None if it does not fit."""
        first = column([self.item(item, limit) for item in body.items[:asked]], limit)
        rest = column([self.item(item, limit) for item in body.items[asked:]], limit)
        x = max(WAY_OUT, first.out + 3, rest.into + 3)
        y = first.height
        whole = max(x - first.out + first.width, x - rest.into + rest.width)
        if whole > limit or not first.leaves:
            return None
        sketch = Sketch(whole, y + 2 + rest.height, x - first.out + first.into, 0)
        sketch.add(x - first.out, 0, first)
        sketch.line((x, y - 1), (x, y), (0, y), (0, sketch.height - 1))
        sketch.label(x // 2 - 1, y, "done")
        sketch.line((x, y), (x, y + 1), arrow=True)
        sketch.add(x - rest.into, y + 2, rest)
        return sketch, x - rest.into + rest.out if rest.leaves else None

    def _aside(self, item: Item, limit: int, *, leaves: bool) -> Sketch:
        """Lay out what runs after a failure: next to the flow, with no edge to it."""
        if isinstance(item, Step):
            inner = _step(replace(item, word=f"on failure: {item.word}"), limit - 3, Shape.ASIDE)
        else:
            inner = _around(self.item(item, limit - 3 - SIDES), "on failure", limit - 3)
        sketch = Sketch(inner.width + 3, inner.height, leaves=leaves, pointed=False)
        sketch.add(3, 0, inner)
        if leaves:
            sketch.line((0, 0), (0, inner.height - 1))
        return sketch

    def _fork(self, fork: Fork, limit: int) -> Sketch:
        free = [self._branch(label, chain, ENDLESS).width for label, chain in fork.branches]
        gaps = GAP * (len(free) - 1)
        if sum(free) + gaps <= limit:
            return self._beside(fork, free, limit)
        tight = [
            min(like, max(self.tight(chain), min(width(label), LONG_ID)))
            for like, (label, chain) in zip(free, fork.branches, strict=True)
        ]
        if sum(tight) + gaps <= limit:
            # Each gets its minimum, and a proportional part of the rest.
            spare = limit - gaps - sum(tight)
            wanted = max(1, sum(free) - sum(tight))
            shares = [least + (like - least) * spare // wanted for least, like in zip(tight, free, strict=True)]
            return self._beside(fork, shares, limit)
        if limit < LEAST:
            return self._listed(fork, limit)
        return _Stack(fork, limit).sketch(
            [(label, self.flow(chain, limit - RAILS) if chain.items else None) for label, chain in fork.branches]
        )

    def _branch(self, label: str, chain: Chain, limit: int) -> Sketch:
        """Lay out a branch with its label above and an arrow between."""
        body = self.flow(chain, limit) if chain.items else stem()
        label = cut(label, min(limit, max(body.width, WORDY // 2)))
        whole = max(body.width, width(label), NARROWEST)
        x = max(0, min(whole // 2 - body.into, whole - body.width))
        head = 2 if label else 1
        sketch = Sketch(whole, head + body.height, x + body.into, x + body.out, body.leaves)
        sketch.line((sketch.into, -1), (sketch.into, head - body.pointed), arrow=body.pointed)
        sketch.label(max(0, min(sketch.into - width(label) // 2, whole - width(label))), 0, label)
        sketch.add(x, head, body)
        return sketch

    def _beside(self, fork: Fork, widths: Sequence[int], limit: int) -> Sketch:
        columns = [self._branch(label, chain, w) for (label, chain), w in zip(fork.branches, widths, strict=True)]
        inside = sum(branch.width for branch in columns) + GAP * (len(columns) - 1)
        sketch = _bar(fork, limit, inside)
        top = sketch.height
        x = (sketch.width - inside) // 2
        ways_in: list[int] = []
        ways_out: list[tuple[int, int]] = []
        for branch in columns:
            sketch.add(x, top, branch)
            ways_in.append(x + branch.into)
            if branch.leaves:
                ways_out.append((x + branch.out, top + branch.height - 1))
            x += branch.width + GAP
        sketch.height = top + max(branch.height for branch in columns)
        middle = (ways_in[0] + ways_in[-1]) // 2
        nearest = min(ways_in, key=lambda column: abs(column - middle))
        sketch.into = nearest if abs(nearest - middle) <= GAP else middle
        _join(sketch, ways_out, _stroke(fork))
        return sketch

    def _listed(self, fork: Fork, limit: int) -> Sketch:
        """Lay out branches one below the other without rails, for very small widths."""
        parts = [replace(_bar(fork, limit), leaves=False)]
        for label, chain in fork.branches:
            name = Sketch(limit, 1, limit // 2, limit // 2, leaves=bool(chain.items), pointed=False)
            name.label(0, 0, cut(f"{label or 'branch'}:", limit))
            parts.append(name)
            if chain.items:
                parts.append(replace(self.flow(chain, limit), leaves=False))
        return column([*parts, _closing("end", fork, limit)], limit)


def _head(item: Frame | Fork, inside: int, limit: int) -> tuple[str, tuple[str, ...]]:
    """Return the title with all facts, or the facts as lines below if they are too
    long.
    """
    title = " · ".join((item.title, *item.facts))
    if width(title) + 6 <= min(limit, max(inside, WORDY)):
        return title, ()
    short = item.title if width(item.title) + 6 <= limit else cut(item.id, limit - 6)
    return short, tuple(cut(fact, min(limit - 4, max(inside, WORDY))) for fact in item.facts)


def _needed(title: str, lines: Sequence[str]) -> int:
    return max([width(title) + 6, *(width(line) + 4 for line in lines)])


def _step(step: Step, limit: int, shape: Shape = Shape.BOX) -> Sketch:
    lines = [step.id, *step.notes, *(f"→ {'end' if jump is None else clean(jump)}" for jump in step.jumps)]
    whole = max(width(step.word) + 6, *(width(line) + 4 for line in lines))
    whole = min(limit, whole + 1 - whole % 2)  # an odd width has a middle
    box = Box(
        whole, len(lines) + 2, shape, str(step.kind), cut(step.word, whole - 6),
        tuple(cut(line, whole - 4) for line in lines), step.path,
    )  # fmt: skip
    sketch = Sketch(whole, box.height, whole // 2, whole // 2, step.leaves)
    sketch.add(0, 0, box)
    return sketch


def _bar(item: Frame | Fork, limit: int, inside: int = 0) -> Sketch:
    """Lay out the head of branches of this width."""
    title, lines = _head(item, inside, limit)
    whole = max(inside, _needed(title, lines))
    sketch = Sketch(whole, len(lines) + 2, whole // 2, whole // 2)
    sketch.add(0, 0, Box(whole, sketch.height, Shape.BAR, str(item.kind), title, lines, item.path))
    return sketch


def _closing(word: str, item: Frame | Fork, limit: int) -> Sketch:
    words = f"{word}: {item.title}"
    return _bar(replace(item, path="", id=words, title=words, facts=()), limit)


def _around(inner: Sketch, title: str, limit: int) -> Sketch:
    title = cut(title, limit - 6)
    whole = max(inner.width + SIDES, width(title) + 6)
    sketch = Sketch(whole, inner.height + 2)
    sketch.add(0, 0, Box(whole, sketch.height, Shape.ASIDE, "", title))
    sketch.add(2, 1, inner)
    return sketch


def _stroke(fork: Fork) -> Stroke:
    return Stroke.AT_ONCE if fork.at_once else Stroke.PLAIN


def _join(sketch: Sketch, ways: Sequence[tuple[int, int]], stroke: Stroke) -> None:
    """Join the branches below the longest one."""
    sketch.leaves = bool(ways)
    sketch.joins = True
    y = sketch.height
    if len(ways) > 1:
        sketch.height += 1
    else:
        y -= 1
    sketch.out = sketch.into if len(ways) > 1 else max((x for x, _ in ways), default=sketch.into)
    for x, bottom in ways:
        sketch.line((x, bottom), (x, y), (sketch.out, y), stroke=stroke)


def _passing(label: str) -> int:
    """Return the first column after the label of an edge that comes from the rail."""
    return width(label) + 7 if label else 4


class _Stack:
    """Branches one below the other: a rail on the left enters them, one on the right
    leaves.
    """

    def __init__(self, fork: Fork, limit: int) -> None:
        self._fork = fork
        self._limit = limit
        self._stroke = _stroke(fork)

    def sketch(self, branches: Sequence[tuple[str, Sketch | None]]) -> Sketch:
        self._needed = max(_passing(cut(label, self._limit - 9)) for label, _ in branches)
        bodies = [body for _, body in branches if body]
        inside = max((max(4 + body.into, self._needed) + body.width - body.into for body in bodies), default=0)
        self._sketch = _bar(self._fork, self._limit, min(self._limit, max(inside, self._needed) + 2))
        self._top = self._sketch.height - 1
        self._lead_on([self._branch(label, body) for label, body in branches])
        return self._sketch

    def _branch(self, label: str, body: Sketch | None) -> tuple[int, int, int] | None:
        """Draw one branch.

        Return its end column and row, and the row of its turn to the rail.
        """
        sketch = self._sketch
        right = self._sketch.width - 2
        label = cut(label, right - 7)
        if body is None:
            y = self._from_rail((self._needed, 0))
            sketch.label(4, y, label)
            sketch.height += 1
            return self._needed, y, y
        x = max(4, min(self._needed - body.into, right - body.width))
        if label and x + body.into < _passing(label):
            sketch.label(3, sketch.height, label)
            sketch.height, label = sketch.height + 1, ""
        y = self._from_rail((x + body.into, 0), (x + body.into, 1), arrow=body.pointed)
        sketch.label(4, y, label)
        sketch.add(x, y + 2, body)
        sketch.height = y + 2 + body.height + 1
        bottom = sketch.height - 2
        return (x + body.out, bottom, bottom + 1) if body.leaves else None

    def _from_rail(self, *points: tuple[int, int], arrow: bool = False) -> int:
        y = self._sketch.height
        self._sketch.line((1, self._top), (1, y), *((x, y + dy) for x, dy in points), stroke=self._stroke, arrow=arrow)
        return y

    def _lead_on(self, ends: Sequence[tuple[int, int, int] | None]) -> None:
        """Lead all branches to where the flow continues: below the last one, or at the
        rail's end.
        """
        sketch = self._sketch
        rail = self._sketch.width - 1
        y = self._sketch.height - 1
        sketch.leaves = any(ends)
        sketch.joins = True
        last = ends[-1]
        sketch.into, sketch.out = (rail // 2, rail) if last is None else (last[0], last[0])
        for end in ends:
            if end is not None:
                x, bottom, turn = end
                turns = [] if end is last else [(x, turn), (rail, turn), (rail, y)]
                sketch.line((x, bottom), *turns, (sketch.out, y), stroke=self._stroke)


def _list(web: Web, limit: int, lay: Callable[[Item, int], Sketch]) -> Sketch:
    """Lay out the nodes one below the other in flow order, each with its edges below."""
    sketch = Sketch(0, 0, leaves=False, pointed=False)
    longest = min(limit, WORDY)
    _add_row(sketch, 0, cut(f"start → {clean(web.start)}", longest - 2), Marker.START)
    sketch.height += 1
    arriving: dict[str | None, list[str]] = {}
    leaving: dict[str, list[Link]] = {}
    for link in web.links:
        arriving.setdefault(link.to, []).append(clean(link.from_))
        leaving.setdefault(link.from_, []).append(link)
    for name, item in web.items.items():
        if name in arriving:
            _add_row(sketch, 0, cut(f"from {', '.join(dict.fromkeys(arriving[name]))}", longest))
        elif name != web.start:
            _add_row(sketch, 0, "on error", Marker.ERROR)
        box = lay(item, limit)
        sketch.add(0, sketch.height, box)
        sketch.height += box.height
        sketch.width = max(sketch.width, box.width)
        _add_edges(sketch, box, leaving[name], longest)
        sketch.height += 1
    sketch.height -= 1
    return sketch


def _add_row(sketch: Sketch, x: int, text: str, marker: Marker = Marker.NONE) -> None:
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
        _add_row(sketch, arrow + 2, cut(target, limit - arrow - 2))
