"""The picture of a workflow's graph, and where in it each node's name stands."""

from __future__ import annotations

import os
import re
from pathlib import Path

from atomic.graph.drawing.text import walk_ids
from atomic.graph.drawing.words import width
from atomic.loading.catalog import WorkflowCatalog
from atomic.workflows.errors import UntrustedError, WorkflowLoadError

COLUMNS = 40  # what stands beside a transcript is narrow

Picture = tuple[tuple[str, ...], dict[str, tuple[int, int, int]]]


def picture_of(project: str, workflow: str) -> Picture | None:
    """Draw it, if its file can be loaded without running what nobody has trusted; None if there is nothing to draw."""
    if not os.path.isdir(project):
        return None
    definition = WorkflowCatalog(Path(project)).find(workflow)
    try:
        graph = None if definition is None else definition.load().graph
    except (UntrustedError, WorkflowLoadError):
        return None
    if graph is None:
        return None
    lines = tuple(graph.draw(COLUMNS).rstrip("\n").split("\n"))
    return lines, places_in(lines, list(walk_ids(graph)))


def places_in(lines: tuple[str, ...], ids: list[str]) -> dict[str, tuple[int, int, int]]:
    """For each node row, column and cells of its name; one whose name was cut has none."""
    places: dict[str, tuple[int, int, int]] = {}
    for id in ids:
        name = id.rpartition("/")[2]
        # In its own box first: what a frame is titled may be a word for a kind of node.
        inside, titled = (rf"(?<=[{sides}] ){re.escape(name)}(?= *[{sides}])" for sides in ("│║╎", "─═╌"))
        place = _first(inside, lines) or _first(titled, lines)
        if place is not None:
            places[id] = (*place, width(name))
    return places


def _first(pattern: str, lines: tuple[str, ...]) -> tuple[int, int] | None:
    for row, line in enumerate(lines):
        if (found := re.search(pattern, line)) is not None:
            return row, width(line[: found.start()])
    return None
