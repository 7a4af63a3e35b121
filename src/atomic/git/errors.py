"""Why git did not do what it was asked to."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.errors import AtomicError


class GitError(AtomicError):
    """A call of git failed; `reason` is what git said."""

    def __init__(self, arguments: Sequence[str], reason: str) -> None:
        self.arguments, self.reason = tuple(arguments), reason
        super().__init__(f"git {arguments[0] if arguments else ''} failed: {reason}")


class PatchError(AtomicError):
    """Recorded changes cannot be made here; the text says which file and why."""
