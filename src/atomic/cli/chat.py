"""`atomic chat`: the screen, its plain form, or the same in a browser."""

from __future__ import annotations

import os

from atomic.base.arguments import Arguments, UsageError

NO_TERMINAL = (
    "The screen needs a terminal: --plain reads and prints plain lines, "
    'atomic -p "PROMPT" runs one turn without a screen'
)


def run_chat(arguments: Arguments) -> int:
    """Talk with an agent until the person leaves; the exit code."""
    from atomic.tui.main import ChatRequest, is_terminal, show

    request = ChatRequest(
        agent=arguments.value("--agent"),
        model=arguments.value("--model"),
        theme=arguments.value("--theme"),
        resume=arguments.value("--resume"),
        record=arguments.value("--record"),
        prompt=_readable(" ".join(arguments.words)),
    )
    _check(arguments)
    if arguments.has("--web"):
        return _serve(request, arguments.value("--port"))
    if arguments.has("--plain") or os.environ.get("TERM") == "dumb":
        from atomic.cli.plain_chat import talk

        return talk(request)
    if not is_terminal():
        raise UsageError(NO_TERMINAL)
    return show(request)


def _check(arguments: Arguments) -> None:
    """Refuse what would be ignored."""
    if arguments.has("--port") and not arguments.has("--web"):
        raise UsageError("--port is the port of --web")
    if arguments.has("--plain") and arguments.has("--web"):
        raise UsageError("--plain and --web are two ways to show a conversation: choose one")
    if arguments.has("--plain") and arguments.has("--theme"):
        raise UsageError("--plain has no colours: leave --theme out")


def _serve(request: object, port: str | None) -> int:
    from atomic.tui.main import ChatRequest
    from atomic.web.command import serve

    assert isinstance(request, ChatRequest)
    number = int(port) if port and port.isascii() and port.isdecimal() else 0 if port is None else -1
    if not 0 <= number < 65536:
        raise UsageError(f'--port cannot be "{port}": it is a number up to 65535')
    return serve(request, number)


def _readable(text: str) -> str:
    # What is not UTF-8 came in as surrogates, which nothing behind here could write.
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
