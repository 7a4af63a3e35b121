"""`atomic chat --web`: the screen in a browser on this machine."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from atomic.base.errors import AtomicError, ExitCode
from atomic.tui.main import ChatRequest


class WebMissingError(AtomicError):
    """The extra that serves a browser is not installed."""

    exit_code = ExitCode.FAILED

    def __init__(self) -> None:
        from atomic.base.installation import Installation

        super().__init__(f"--web needs the package textual-serve: {Installation().add_extra('web')}")


def serve(request: ChatRequest, port: int) -> int:
    """Serve until a signal or the screen ends it, and return the exit code.

    Port 0 is any free port. Raises WebMissingError.
    """
    if find_spec("textual_serve") is None:
        raise WebMissingError
    from atomic.web.server import run_server

    return run_server(web_command(request), port)


def web_command(request: ChatRequest) -> tuple[str, ...]:
    """Return the command that runs the screen for one browser."""
    import msgspec

    return sys.executable, "-P", "-m", "atomic.web.screen_process", msgspec.json.encode(vars(request)).decode()
