"""Take apart the public name of a step, such as `work[a/b]/fix[2]`.

A name is a path of node ids. In brackets after an id is the item of a map or the task of a task loop, whose own id may
contain slashes and pairs of brackets.
"""

from __future__ import annotations


def split_first(step: str) -> tuple[str, str, str]:
    """Return the first node id, its items and the rest: `work`, `[a/b]` and `fix[2]` of `work[a/b]/fix[2]`."""
    first, rest = step, ""
    depth = 0
    for place, char in enumerate(step):
        if char == "[":
            depth += 1
        elif char == "]":
            depth = max(depth - 1, 0)
        elif char == "/" and depth == 0:
            first, rest = step[:place], step[place + 1 :]
            break
    id, bracket, items = first.partition("[")
    return id, f"{bracket}{items}", rest


def without_items(step: str) -> str:
    """Return the path of node ids: `work/fix` of `work[a/b]/fix[2]`."""
    id, _, rest = split_first(step)
    return f"{id}/{without_items(rest)}" if rest else id


def local_node(step: str) -> str:
    """Return the id of the step's own node: `fix` of `work[a/b]/fix[2]`."""
    return without_items(step).rpartition("/")[2]
