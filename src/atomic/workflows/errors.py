"""What can go wrong in a workflow beyond its graph."""

from __future__ import annotations

from atomic.errors import AtomicError


class SubagentError(AtomicError):
    """A sub-agent came back without success."""

    def __init__(self, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(f'agent "{agent}" failed: {reason}')
