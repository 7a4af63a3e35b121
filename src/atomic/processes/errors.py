"""Why a program could not be run to its end."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.errors import AtomicError


class ExecError(AtomicError):
    """A program could not be run to its end."""

    def __init__(self, message: str, argv: Sequence[str]) -> None:
        self.argv = tuple(argv)
        super().__init__(message)


class ProgramNotFoundError(ExecError):
    """There is no such program."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.program = argv[0]
        super().__init__(
            f'Program not found: "{self.program}" (install it, put it on PATH or give its full path)', argv
        )


class ExecTimeoutError(ExecError):
    """A program took too long and was ended; what it had said until then is kept."""

    def __init__(
        self, argv: Sequence[str], *, timeout: float, stdout: str, stderr: str, survivors: Sequence[str]
    ) -> None:
        self.timeout, self.stdout, self.stderr, self.survivors = timeout, stdout, stderr, tuple(survivors)
        message = f'Program took longer than {timeout:g} s and was ended: "{argv[0]}" (give it a longer timeout)'
        if survivors:
            message += f"; still alive after SIGKILL: {', '.join(survivors)}"
        super().__init__(message, argv)


class ExecOutputError(ExecError):
    """A program said more than can be kept and was ended."""

    def __init__(self, argv: Sequence[str], *, max_output: int) -> None:
        self.max_output = max_output
        super().__init__(
            f'Program wrote more than {max_output} bytes and was ended: "{argv[0]}" '
            "(let it write to a file, or raise max_output)",
            argv,
        )
