"""What can go wrong between Atomic and an agent that speaks the protocol."""

from __future__ import annotations

from atomic.providers.errors import ProgramFailedError, ProviderError


class BrokenProtocolError(ProgramFailedError):
    """The agent said something that is no message of the protocol; it cannot be understood any more."""


class RefusedError(ProviderError):
    """The agent answered a request with an error."""

    def __init__(self, message: str, *, provider: str, code: int) -> None:
        self.code = code
        super().__init__(message, provider=provider)
