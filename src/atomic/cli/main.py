"""Run a command line. Every error is one line for the user and an exit code."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError, parse
from atomic.base.errors import AtomicError, ExitCode, did_you_mean, is_debugging, message_of
from atomic.base.terminal import escaped_json
from atomic.cli.errors import exit_code_of
from atomic.cli.streams import STDERR, STDIN, STDOUT, fill_gaps, put, tell, write
from atomic.cli.verbs import CHAT, TOP, VERBS, Verb, expand

_STARTS_AGENTS = ("answer", "chat", "resume", "run", "signal")


def main(words: Sequence[str] | None = None) -> int:
    """Run `atomic` with these words, by default the process's own, and return its exit
    code.
    """
    fill_gaps()
    # Processes inherit it: no core dump, with secrets in it, is left in a project's
    # folder.
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    given = expand(sys.argv[1:] if words is None else words)
    try:
        return _run(given)
    except KeyboardInterrupt as stop:
        return ExitCode.SIGNALLED + (stop.args[0] if stop.args else 2)
    except Exception as error:  # internal errors are one line too; ATOMIC_DEBUG shows the traceback
        if is_debugging() and not isinstance(error, AtomicError):
            raise
        code = exit_code_of(error)
        if _wants_events(given):
            import json  # not msgspec: a file name in the message may not be Unicode

            data = {"type": "error", "exit_code": code, "message": message_of(error)}
            put(escaped_json(json.dumps(data)) + "\n")
        tell(message_of(error))
        return code


def _wants_events(words: list[str]) -> bool:
    """Return whether a program reads the events of a run.

    It gets errors as JSON, usage errors too.
    """
    flags = words[: words.index("--")] if "--" in words else words
    return words[:1] in (["run"], ["resume"], ["answer"], ["signal"]) and "--json" in flags


def _run(words: list[str]) -> int:
    if words[:1] == ["complete"]:  # a shell waits at every Tab: import nothing else
        from atomic.cli.completion import complete

        return complete(words[1:])
    has_screen = os.isatty(STDIN) and os.isatty(STDOUT)
    # Verbs have no blank in their names. On a screen the user can still edit such a
    # prompt.
    is_prompt = has_screen and bool(words) and any(map(str.isspace, words[0]))
    if words and not words[0].startswith("-") and not is_prompt:
        if words[0] in _STARTS_AGENTS:
            _remove_leftovers()
        return run_verb(words)
    arguments = parse(words, TOP)
    if arguments.has("--help"):
        from atomic.cli.help import top_help

        put(top_help())
        return ExitCode.DONE
    if arguments.has("--version"):
        from atomic import __version__

        put(f"atomic {__version__}\n")
        return ExitCode.DONE
    _remove_leftovers()
    if arguments.has("-p"):
        return _run_turn(arguments)
    return _run_chat(arguments, has_screen=has_screen)


def _remove_leftovers() -> None:
    """Remove temporary folders that killed processes of Atomic have left."""
    from atomic.processes.temporary_folders import remove_leftovers  # commands that start agents import it anyway

    remove_leftovers()


def _run_chat(arguments: Arguments, *, has_screen: bool) -> int:
    """Run `atomic [flags] [prompt]`, which is `atomic chat` if there is a screen."""
    if arguments.has("--output"):
        raise UsageError('--output only works with -p: atomic -p "PROMPT" --output FORMAT')
    if arguments.has("--json"):
        raise UsageError('--json only works with -p, or after a command: atomic -p "PROMPT" --json')
    if not has_screen and not arguments.has("--web") and not arguments.has("--plain"):
        if not arguments.flags_given and not arguments.words:
            from atomic.cli.help import top_help

            write(STDERR, top_help())
            return ExitCode.USAGE
        raise UsageError('Nothing to do: atomic -p "PROMPT" runs one turn of an agent, atomic --help lists the rest')
    return VERBS["chat"].load()(arguments)


def run_verb(words: list[str]) -> int:
    """Run a command line that begins with a verb, and return its exit code."""
    verb, rest = _find_verb(words)
    if verb.workflow is None:
        arguments = parse(rest, verb.flags, mixed=True, leading=verb.leading)
    else:
        from atomic.cli.workflow_flags import read_line

        arguments = read_line(verb, rest)
    if arguments.has("--help") or not verb.run:
        from atomic.cli.help import verb_help

        put(verb_help(verb, arguments.flags, arguments.workflow))
        return ExitCode.DONE
    verb.check(arguments.words)
    arguments.line = words
    if verb is not VERBS["chat"]:  # the screen handles signals itself, and starts before logging is imported
        _prepare()
    return verb.load()(arguments)


def _find_verb(words: list[str]) -> tuple[Verb, list[str]]:
    """Return the verb at the start of a command line, and the rest.

    Raise UsageError with the nearest name.

    A group of verbs is returned itself if its help is wanted, else its default verb.
    """
    name, *rest = words
    verb = VERBS.get(name)
    if verb is None:
        raise UsageError(f'Unknown command: "{name}"{_hint_for(name)}')
    if not verb.verbs or rest[:1] in (["-h"], ["--help"]):
        return verb, rest
    if not rest or rest[0].startswith("-"):
        return verb.verbs[verb.default], rest
    if rest[0] in verb.verbs:
        return verb.verbs[rest[0]], rest[1:]
    hint = did_you_mean(rest[0], verb.verbs)
    if not hint and verb.verbs[verb.default].words:  # atomic tasks FILE
        return verb.verbs[verb.default], rest
    hint = hint or f" (there are: {', '.join(verb.verbs)})"
    raise UsageError(f'Unknown command: "{name} {rest[0]}"{hint}')


def _hint_for(name: str) -> str:
    """Return the likely meaning of an unknown command. No code of a workflow runs."""
    from atomic.cli.other_words import OTHER_WORDS
    from atomic.cli.workflow_sources import find_written, is_file_name
    from atomic.config import atomic_home, find_project

    if is_file_name(name) and os.path.isfile(name):
        return f" (it is a file: atomic run {name})"
    if find_written(name, find_project(), atomic_home()) is not None:
        return f' (it is a workflow: atomic run {name} "…")'
    meant = OTHER_WORDS.get(name.lower())
    if meant is not None:
        return f" ({meant})"
    return did_you_mean(name, VERBS, otherwise='atomic --help lists them; a prompt needs -p: atomic -p "…"')


def _run_turn(arguments: Arguments) -> int:
    for flag in CHAT:
        if arguments.has(flag.name):
            raise UsageError(f"{flag.name} is a flag of the screen: leave out {flag.name}, or -p")
    output = arguments.value("--output")
    if arguments.has("--json") and output not in (None, "json"):
        raise UsageError(f"--json means --output json: leave out --json, or --output {output}")
    _prepare()
    if arguments.words and not arguments.is_marked:
        from atomic.cli.prompt_flags import check_prompt

        is_json = output not in (None, "text") or arguments.has("--json")
        check_prompt(arguments.words, TOP, question="" if is_json else "Send this prompt? [y/N] ")
    from atomic.cli.turn import TurnRequest, read_prompt, run_turn

    prompt = read_prompt([word for word in (arguments.value("-p"), *arguments.words) if word])
    request = TurnRequest(
        prompt.text,
        agent=arguments.value("--agent"),
        model=arguments.value("--model"),
        output="json" if arguments.has("--json") else output or "text",
        record=arguments.value("--record"),
    )
    if not prompt.typed.lstrip().startswith(("/", "@")):
        return run_turn(request)
    from atomic.cli.slash_commands import run_prompt

    return run_prompt(request, prompt)


def _prepare() -> None:
    """Make signals end the process with their exit code, and keep logs off the
    terminal.
    """
    import atexit
    import gc
    import logging

    from atomic.cli.signals import raise_on_signals

    raise_on_signals()
    atexit.register(gc.freeze)  # else Python collects garbage in memory that the system frees at once
    if is_debugging():
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger().addHandler(logging.NullHandler())
