"""What a host cannot do for its person, whichever host it is; each says it in one sentence."""

from __future__ import annotations

from atomic.base.errors import AtomicError


class HostError(AtomicError):
    """Something that a host needs is not there."""


class WrongAgentError(HostError):
    """An agent was named that cannot be meant."""


class NoAgentError(HostError):
    """No agent can be used here."""


class NoModelsError(HostError):
    """An agent does not tell its models."""


class FolderGoneError(HostError):
    """The current folder was removed."""

    def __init__(self) -> None:
        super().__init__("the current folder no longer exists (change to another one)")
