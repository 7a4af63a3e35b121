"""Where a port comes from. `scripts/ports.py` makes the table of docs/ports.md from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from atomic.workflows import RunStatus

TestT = TypeVar("TestT", bound=Callable[..., Any])


def port(project: str, name: str, *, lines: int) -> Callable[[TestT], TestT]:
    """Mark a test as a port of another project's test or sample.

    `lines` are theirs, without blank lines, imports and comments, and without what the
    port leaves out.
    """

    def mark(test: TestT) -> TestT:
        test.__doc__ = f"Port of {project}: {name}, {lines} lines."
        return test

    return mark


async def results(stream: AsyncIterator[Any]) -> list[tuple[str, Any]]:
    """Return the completed steps of a streamed function workflow, with their results."""
    steps = [step async for step in stream]
    completed = [step for step in steps if step.status is RunStatus.COMPLETED]
    return [(step.node_id, step.update["outputs"][step.node_id]) for step in completed]
