"""Split the public name of a step, such as `work[a/b]/fix[2]`.

A name is a path of node ids. The brackets after an id contain the item of a map or the
task of a task loop, whose own id may contain slashes and pairs of brackets.
"""

from __future__ import annotations


def split_first(step: str) -> tuple[str, str, str]:
    """Return the first id, its items and the rest: `work`, `[a/b]`, `fix[2]` for the
    name above.
    """
    first = step
    rest = ""
    depth = 0
    for index, char in enumerate(step):
        if char == "[":
            depth += 1
        elif char == "]":
            depth = max(depth - 1, 0)
        elif char == "/" and depth == 0:
            first = step[:index]
            rest = step[index + 1 :]
            break
    id, bracket, items = first.partition("[")
    return id, f"{bracket}{items}", rest


def without_items(step: str) -> str:
    """Return the path of node ids: `work/fix` for `work[a/b]/fix[2]`."""
    id, _, rest = split_first(step)
    return f"{id}/{without_items(rest)}" if rest else id


def local_node(step: str) -> str:
    """Return the id of the step's own node: `fix` for `work[a/b]/fix[2]`."""
    return without_items(step).rpartition("/")[2]
