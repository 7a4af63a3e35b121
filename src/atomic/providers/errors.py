"""What can go wrong before a turn begins; each says what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from atomic.errors import AtomicError, closest


class ProviderError(AtomicError):
    """An agent cannot be used as asked. `remedy` is what to do, where that is known."""

    def __init__(self, message: str, *, provider: str = "", remedy: str = "") -> None:
        self.provider, self.remedy = provider, remedy
        super().__init__(f"{message} ({remedy})" if remedy else message)


class UnknownProviderError(ProviderError):
    """There is no provider of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, known = name, list(known)
        self.suggestion = closest(name, known)
        hint = f'did you mean "{self.suggestion}"?' if self.suggestion else f"known: {', '.join(known)}"
        super().__init__(f'Unknown agent: "{name}"', provider=name, remedy=hint)


class ProgramMissingError(ProviderError):
    """The provider's program or SDK is not installed, or not where a setting says."""


class ProgramFailedError(ProviderError):
    """The provider's program could not be started, or ended by itself."""


class NotLoggedInError(ProviderError):
    """The provider has neither a login nor a key."""


class UntrustedProjectError(ProviderError):
    """The project carries code that this agent would run, and cannot be told not to."""

    def __init__(self, provider: str, items: Sequence[str]) -> None:
        self.items = tuple(items)
        super().__init__(
            f"{provider} would run code of this project that is not trusted: {', '.join(items)}",
            provider=provider,
            remedy="look at it, then trust the project, or choose another agent",
        )


class SessionBusyError(ProviderError):
    """A session takes one prompt at a time."""

    def __init__(self, provider: str) -> None:
        super().__init__(
            "The session is in a turn", provider=provider, remedy="wait for its TurnEnded, or interrupt it"
        )


class UnsupportedError(ProviderError):
    """The provider cannot do that; `Capabilities` says so beforehand."""


class AnswerError(ProviderError):
    """An agent did not give a structured answer of the wanted type."""


class UnreadableAnswerError(AnswerError):
    """An agent answered, but with something else."""
