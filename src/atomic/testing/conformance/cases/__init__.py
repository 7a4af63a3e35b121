"""All cases, by heading."""

from __future__ import annotations

from atomic.providers import Capabilities
from atomic.testing.conformance.case import Case
from atomic.testing.conformance.cases import (
    answers,
    deaths,
    failures,
    interrupts,
    meters,
    questions,
    sessions,
    sizes,
    streams,
    subagents,
    tools,
)

GROUPS = (streams, tools, subagents, questions, interrupts, sessions, meters, answers, failures, deaths, sizes)
CASES: tuple[Case, ...] = tuple(case for group in GROUPS for case in group.cases.cases)


def cases_for(capabilities: Capabilities) -> list[Case]:
    """The cases that a provider with these capabilities must pass."""
    return [case for case in CASES if case.needs(capabilities)]


__all__ = ["CASES", "GROUPS", "Case", "cases_for"]
