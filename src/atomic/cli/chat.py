"""`atomic chat`: a conversation on the screen, as plain lines, or in a browser."""

from __future__ import annotations

import os

from atomic.base.arguments import Arguments, UsageError
from atomic.cli.streams import readable

NO_TERMINAL = (
    "The screen needs a terminal: --plain reads and prints plain lines, "
    'atomic -p "PROMPT" runs one turn without a screen'
)


def run_chat(arguments: Arguments) -> int:
    """Run a conversation until the user leaves it, and return the exit code."""
    from atomic.tui.main import ChatRequest, is_terminal, show

    if arguments.words and not arguments.is_marked:
        from atomic.cli.prompt_flags import check_prompt

        check_prompt(arguments.words, arguments.flags, question="Send this prompt? [y/N] ")
    request = ChatRequest(
        agent=arguments.value("--agent"),
        model=arguments.value("--model"),
        theme=arguments.value("--theme"),
        resume=_conversation_of(arguments),
        record=arguments.value("--record"),
        prompt=readable(" ".join(arguments.words)),
    )
    is_plain = arguments.has("--plain")
    if arguments.has("--port") and not arguments.has("--web"):
        raise UsageError("--port only works with --web: atomic --web --port PORT")
    if is_plain and arguments.has("--web"):
        raise UsageError("--plain and --web are two ways to show a conversation: choose one")
    if is_plain and arguments.has("--theme"):
        raise UsageError("--plain has no colours: leave --theme out")
    if arguments.has("--web"):
        from atomic.web.command import serve

        port = arguments.value("--port")
        if port is None:
            port = "0"  # any free port
        if not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 65536):
            raise UsageError(f'--port cannot be "{port}": it is a number up to 65535')
        return serve(request, int(port))
    if is_plain or os.environ.get("TERM") == "dumb":
        from atomic.cli.plain_chat import talk

        return talk(request)
    if not is_terminal():
        raise UsageError(NO_TERMINAL)
    return show(request)


def _conversation_of(arguments: Arguments) -> str | None:
    """Return the id of the conversation to continue; None for a new one.

    Raises AtomicError before the screen opens if there is no such conversation.
    """
    id = arguments.value("--resume")
    if arguments.has("--continue"):
        if id is not None:
            raise UsageError("--continue opens the last conversation and --resume the one with an ID: choose one")
        from atomic.cli.last_run import require_last_conversation

        return require_last_conversation().id
    if id is None:
        return None
    from atomic.cli.resume import require_session

    session = require_session(id)
    if not session.record.is_conversation:
        raise UsageError(f"{session.id} is a run, not a conversation: atomic resume {session.id}")
    return id
