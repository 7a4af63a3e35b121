"""The workflows that come with Atomic. They need no trust: they are Atomic's own code."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.workflows.definition import WorkflowDefinition


def builtin_workflows() -> Sequence[WorkflowDefinition]:
    """Their definitions; each brings its own `loader`, which imports it only when somebody runs it."""
    from atomic.ralph.definition import RALPH

    return (RALPH,)
