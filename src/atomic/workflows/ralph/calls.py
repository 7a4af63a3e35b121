"""The calls of agents that a run has made, as its journal has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atomic.workflows.ledger import CallRecord, read_calls

Call = CallRecord


def calls_of(facts: Mapping[str, Any]) -> list[Call]:
    """The calls of agents that have ended, oldest first."""
    return [call for call in read_calls(facts) if call.is_over and call.id]
