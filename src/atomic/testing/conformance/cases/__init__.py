"""All cases, by heading."""

from __future__ import annotations

from atomic.providers import Capabilities
from atomic.testing.conformance.case import Case
from atomic.testing.conformance.cases import (
    answers,
    failures,
    interrupts,
    meters,
    questions,
    sessions,
    streams,
    subagents,
    tools,
)

GROUPS = (
    streams.cases,
    tools.cases,
    subagents.cases,
    questions.cases,
    interrupts.cases,
    sessions.cases,
    meters.cases,
    answers.cases,
    failures.cases,
    failures.deaths,
    streams.sizes,
)
CASES: tuple[Case, ...] = tuple(case for group in GROUPS for case in group.cases)


def cases_for(capabilities: Capabilities) -> list[Case]:
    """Return the cases that a provider with these capabilities must pass."""
    return [case for case in CASES if case.needs(capabilities)]


__all__ = ["CASES", "GROUPS", "Case", "cases_for"]
