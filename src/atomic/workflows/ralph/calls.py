"""The calls of agents that a run has made, as its session's log has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from atomic.sessions.history import read_lines
from atomic.workflows.ledger import CALLS


class Call(msgspec.Struct, frozen=True):
    """A line of `logs/agent-calls.jsonl`."""

    role: str | None = None
    node: str | None = None
    task: str | None = None
    provider: str | None = None
    model: str | None = None
    reason: str | None = None
    usage: dict[str, Any] | None = None
    seconds: float = 0.0
    file: str | None = None  # with the words of the role; None: they are built in

    @property
    def who(self) -> str:
        return self.role or self.node or "agent"


def calls_of(session: Path) -> Iterator[Call]:
    """The calls of agents, oldest first."""
    for line in read_lines(session / "logs" / CALLS):
        try:
            yield msgspec.convert(line, Call)
        except msgspec.ValidationError:
            continue
