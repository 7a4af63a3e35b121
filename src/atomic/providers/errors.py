"""Errors of providers; each explains what happened and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atomic.base.errors import AtomicError, suggest


class ProviderError(AtomicError):
    """An agent cannot be used as requested.

    `remedy` explains how to fix it, if known.
    """

    def __init__(self, message: str, *, provider: str = "", remedy: str = "") -> None:
        self.provider = provider
        self.remedy = remedy
        super().__init__(f"{message} ({remedy})" if remedy else message)


class UnknownProviderError(ProviderError):
    """No provider has that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        known = list(known)
        hint = suggest(name, known, otherwise=f"known: {', '.join(known)}")
        super().__init__(f'Unknown agent: "{name}"', provider=name, remedy=hint)


class ProgramMissingError(ProviderError):
    """The provider's program or SDK is not installed, or not at the configured path."""


class ProgramFailedError(ProviderError):
    """The provider's program did not start, or ended unexpectedly."""


class NotLoggedInError(ProviderError):
    """The provider has neither a login nor an API key."""


class UntrustedProjectError(ProviderError):
    """The project contains code that this agent would run and that cannot be disabled."""

    def __init__(self, provider: str, items: Sequence[str]) -> None:
        self.items = tuple(items)
        super().__init__(
            f"{provider} would run code of this project that is not trusted: {', '.join(items)}",
            provider=provider,
            remedy="review it and trust the project, or choose another agent",
        )


class SessionBusyError(ProviderError):
    """A session accepts one prompt at a time."""

    def __init__(self, provider: str) -> None:
        super().__init__(
            "The session is busy with a turn", provider=provider, remedy="wait for its TurnEnded, or interrupt it"
        )


class UnsupportedError(ProviderError):
    """The provider does not support this; see `Capabilities`."""


class AnswerError(ProviderError):
    """An agent did not return a structured answer of the wanted type."""


class UnreadableAnswerError(AnswerError):
    """An agent's answer does not fit the wanted type."""
