"""The error of a command that cannot run, and the exit codes of all errors."""

from __future__ import annotations

from atomic.base.errors import AtomicError, ExitCode


class CliError(AtomicError):
    """The command cannot run."""

    def __init__(self, message: str, exit_code: int = ExitCode.FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, AtomicError) and isinstance(code := getattr(error, "exit_code", None), int):
        return code
    from atomic.config import ConfigError
    from atomic.providers import ProviderError, UnknownProviderError, UntrustedProjectError
    from atomic.providers.selection import WrongAgentError

    if isinstance(error, ConfigError | UnknownProviderError | WrongAgentError):
        return ExitCode.USAGE
    if isinstance(error, ProviderError) and error.provider == "replay":
        return ExitCode.USAGE  # the recording is missing or invalid
    return ExitCode.UNTRUSTED if isinstance(error, UntrustedProjectError) else ExitCode.FAILED
