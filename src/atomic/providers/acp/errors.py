"""Errors of agents that implement the protocol."""

from __future__ import annotations

from atomic.providers.errors import ProgramFailedError, ProviderError


class BrokenProtocolError(ProgramFailedError):
    """The agent sent something that is not a message of the protocol."""


class RefusedError(ProviderError):
    """The agent answered a request with an error."""

    def __init__(self, message: str, *, provider: str, code: int) -> None:
        self.code = code
        super().__init__(message, provider=provider)
