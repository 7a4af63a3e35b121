"""What the command line refuses, and the exit codes that say so."""

from __future__ import annotations

from atomic.errors import AtomicError

OK, FAILED, USAGE, UNTRUSTED, WAITING, LIMITED = 0, 1, 2, 4, 5, 7
SIGNALLED = 128  # and the number of the signal


class CliError(AtomicError):
    """The command cannot be carried out."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class UsageError(CliError):
    """The command line says something that it cannot mean."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def exit_code_of(error: Exception) -> int:
    """The exit code that an error ends the command with."""
    if isinstance(error, AtomicError) and isinstance(code := getattr(error, "exit_code", None), int):
        return code
    from atomic.config import ConfigError
    from atomic.hosts import WrongAgentError
    from atomic.providers import ProviderError, UnknownProviderError, UntrustedProjectError

    if isinstance(error, ConfigError | UnknownProviderError | WrongAgentError):
        return USAGE
    if isinstance(error, ProviderError) and error.provider == "replay":
        return USAGE  # the recording that was named is not there, or none
    return UNTRUSTED if isinstance(error, UntrustedProjectError) else FAILED
