"""Find tasks that wait for themselves. Loops, not recursion: a chain may be longer than the stack is deep."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

Graph = Sequence[Sequence[int]]  # for each number, the numbers it points to


class Cycle(msgspec.Struct, frozen=True):
    """Numbers of which each can be reached from each, and one way around, from its smallest number to the last."""

    members: list[int]
    way: list[int]


def find_cycles(graph: Graph, reverse: Graph) -> list[Cycle]:
    """Find each knot of cycles once, the smallest member first; an edge to oneself is not looked at."""
    knots = [sorted(knot) for knot in _knots(graph, _left_over(graph, reverse))]
    return [Cycle(knot, _shortest_way(graph, knot)) for knot in sorted(knots)]


def _left_over(graph: Graph, reverse: Graph) -> list[int]:
    """Peel off all that ends somewhere; what is left is on a cycle or leads to one. Mostly it is nothing."""
    ahead = [len(targets) for targets in graph]
    free = [i for i, count in enumerate(ahead) if not count]
    for i in free:  # grows while it is walked
        for source in reverse[i]:
            ahead[source] -= 1
            if not ahead[source]:
                free.append(source)
    return [i for i, count in enumerate(ahead) if count] if len(free) < len(graph) else []


def _knots(graph: Graph, starts: Sequence[int]) -> list[list[int]]:
    """Tarjan's strongly connected components, those of more than one member."""
    found: list[list[int]] = []
    order: dict[int, int] = {}  # number -> when it was first seen
    low: dict[int, int] = {}  # number -> the earliest seen that it leads back to
    open: list[int] = []
    is_open: set[int] = set()
    for start in starts:
        if start in order:
            continue
        order[start] = low[start] = len(order)
        open.append(start)
        is_open.add(start)
        walk = [(start, iter(graph[start]))]
        while walk:
            here, targets = walk[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    open.append(target)
                    is_open.add(target)
                    walk.append((target, iter(graph[target])))
                    break
                if target in is_open:
                    low[here] = min(low[here], order[target])
            else:
                walk.pop()
                if walk:
                    low[walk[-1][0]] = min(low[walk[-1][0]], low[here])
                if low[here] == order[here]:
                    knot = [open.pop()]
                    while knot[-1] != here:
                        knot.append(open.pop())
                    is_open.difference_update(knot)
                    if len(knot) > 1:
                        found.append(knot)
    return found


def _shortest_way(graph: Graph, knot: list[int]) -> list[int]:
    start, members = knot[0], set(knot)
    came_from: dict[int, int] = {}
    queue = deque([start])
    while start not in came_from:
        here = queue.popleft()
        for target in graph[here]:
            if target in members and target not in came_from:
                came_from[target] = here
                queue.append(target)
    way = [came_from[start]]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return way[::-1]
