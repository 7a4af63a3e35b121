"""Find tasks that wait for themselves, without recursion: a chain may exceed the stack."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

Graph = Sequence[Sequence[int]]  # the targets of each number


class Cycle(msgspec.Struct, frozen=True):
    """Numbers that all reach each other, and a shortest cycle from the smallest of
    them.
    """

    members: list[int]
    way: list[int]


def find_cycles(graph: Graph, reverse: Graph) -> list[Cycle]:
    """Return each group of connected cycles once.

    Edges from a number to itself are ignored.
    """
    components = [sorted(component) for component in _components(graph, _left_over(graph, reverse))]
    return [Cycle(component, _shortest_way(graph, component)) for component in sorted(components)]


def _left_over(graph: Graph, reverse: Graph) -> list[int]:
    """Return the numbers on a cycle or before one. Usually there are none."""
    ahead = [len(targets) for targets in graph]
    free = [i for i, count in enumerate(ahead) if not count]
    for i in free:  # grows while it is walked
        for source in reverse[i]:
            ahead[source] -= 1
            if not ahead[source]:
                free.append(source)
    return [i for i, count in enumerate(ahead) if count] if len(free) < len(graph) else []


def _components(graph: Graph, starts: Sequence[int]) -> list[list[int]]:
    """Return the strongly connected components with several members (Tarjan's
    algorithm).
    """
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
                    component = [open.pop()]
                    while component[-1] != here:
                        component.append(open.pop())
                    is_open.difference_update(component)
                    if len(component) > 1:
                        found.append(component)
    return found


def _shortest_way(graph: Graph, component: list[int]) -> list[int]:
    start = component[0]
    members = set(component)
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
