"""Carry out a command line; every mistake of a user is one line and an exit code."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError, parse
from atomic.base.errors import AtomicError, ExitCode, did_you_mean, is_debugging, message_of
from atomic.base.flags import flag_in_prompt
from atomic.base.terminal import escaped_json
from atomic.cli.errors import exit_code_of
from atomic.cli.streams import STDERR, STDIN, STDOUT, fill_gaps, put, tell, write
from atomic.cli.verbs import CHAT, TOP, VERBS, Verb

_STARTS_AGENTS = ("answer", "chat", "resume", "run")


def main(words: Sequence[str] | None = None) -> int:
    """Run `atomic` with these words, else with those of the process; its exit code."""
    fill_gaps()
    _write_no_core()
    given = sys.argv[1:] if words is None else list(words)
    try:
        return _carry_out(given)
    except KeyboardInterrupt as stop:
        return ExitCode.SIGNALLED + (stop.args[0] if stop.args else 2)
    except Exception as error:  # a mistake of ours is one line for the user too; ATOMIC_DEBUG shows all of it
        if is_debugging() and not isinstance(error, AtomicError):
            raise
        code = exit_code_of(error)
        if _wants_json(given):
            put(_refusal(message_of(error), code))
        tell(message_of(error))
        return code


def _write_no_core() -> None:
    """Leave no image of the memory, with its secrets, in a project's folder. What Atomic starts inherits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _clean_up() -> None:
    """Remove what killed processes of ours have left below the temporary folder."""
    from atomic.processes.temporary_folders import remove_leftovers  # what starts agents needs that room anyway

    remove_leftovers()


def _wants_json(words: list[str]) -> bool:
    """Whether a program reads what a run says: it is told of a refusal too, also where its words make no sense."""
    said = words[: words.index("--")] if "--" in words else words
    return words[:1] in (["run"], ["resume"], ["answer"]) and "--json" in said


def _refusal(why: str, exit_code: int) -> str:
    import json  # not msgspec: a file name in `why` may be no Unicode

    return escaped_json(json.dumps({"type": "error", "exit_code": exit_code, "message": why})) + "\n"


def _carry_out(words: list[str]) -> int:
    if words[:1] == ["complete"]:  # a shell asks, at every Tab: nothing else may take its time
        from atomic.cli.completion import complete

        return complete(words[1:])
    if words and not words[0].startswith("-") and not _is_prompt(words[0]):
        if words[0] in _STARTS_AGENTS:
            _clean_up()
        return _verb(words)
    arguments = parse(words, TOP)
    if arguments.has("--help"):
        return _help()
    if arguments.has("--version"):
        from atomic import __version__

        put(f"atomic {__version__}\n")
        return ExitCode.DONE
    _clean_up()
    if arguments.has("-p"):
        return _turn(arguments)
    return _chat(arguments)


def _is_prompt(word: str) -> bool:
    """No verb has a blank in its name, and a person who sees the screen can take the text back."""
    return any(map(str.isspace, word)) and _is_seen()


def _is_seen() -> bool:
    return os.isatty(STDIN) and os.isatty(STDOUT)


def _chat(arguments: Arguments) -> int:
    """`atomic [flags] [prompt]` is `atomic chat`, if somebody is there."""
    if not _is_seen() and not arguments.has("--web") and not arguments.has("--plain"):
        if not arguments.flags_given and not arguments.words:
            from atomic.cli.help import top_help

            write(STDERR, top_help())
            return ExitCode.USAGE
        raise UsageError('Nothing to do: atomic -p "PROMPT" is one turn of an agent, atomic --help shows the rest')
    if arguments.has("--output"):
        raise UsageError("--output is the output of -p")
    return VERBS["chat"].load()(arguments)


def _verb(words: list[str]) -> int:
    verb, rest = _find_verb(words)
    arguments = _read(verb, rest)
    if arguments.has("--help") or not verb.run:
        from atomic.cli.help import verb_help

        put(verb_help(verb, arguments.flags))
        return ExitCode.DONE
    verb.check(arguments.words)
    if verb is not VERBS["chat"]:  # the screen is there before logging could be imported, and has signals of its own
        _prepare()
    return verb.load()(arguments)


def _read(verb: Verb, words: list[str]) -> Arguments:
    if verb.workflow is None:
        return parse(words, verb.flags, mixed=True, leading=verb.leading)
    from atomic.cli.workflow_flags import read_line

    return read_line(verb, words)


def _find_verb(words: list[str]) -> tuple[Verb, list[str]]:
    """The verb that the first words name, and the others; a group whose own help is asked for is one too."""
    name, *rest = words
    verb = VERBS.get(name)
    if verb is None:
        from atomic.config import ralph_flags

        if name in (ralph_flags.NAME, *ralph_flags.ALIASES):
            raise UsageError(f'Unknown command: "{name}" (it is a workflow: atomic run {name} "…")')
        known = [*VERBS, "--help", "--version"]
        hint = did_you_mean(name, known, otherwise='atomic --help lists them; a prompt needs -p: atomic -p "…"')
        raise UsageError(f'Unknown command: "{name}"{hint}')
    if not verb.verbs or rest[:1] in (["-h"], ["--help"]):
        return verb, rest
    if not rest or rest[0].startswith("-"):
        return verb.verbs[verb.default], rest
    if rest[0] not in verb.verbs:
        hint = did_you_mean(rest[0], verb.verbs)
        if not hint and verb.verbs[verb.default].words:  # atomic tasks FILE
            return verb.verbs[verb.default], rest
        hint = hint or f" (there are: {', '.join(verb.verbs)})"
        raise UsageError(f'Unknown command: "{name} {rest[0]}"{hint}')
    return verb.verbs[rest[0]], rest[1:]


def _turn(arguments: Arguments) -> int:
    for flag in CHAT:
        if arguments.has(flag.name):
            raise UsageError(f"{flag.name} is a flag of the screen: leave it out, or -p")
    _prepare()
    if not arguments.is_marked and (warning := flag_in_prompt(arguments.words, TOP)):
        tell(f"warning: {warning}")
    from atomic.cli.prompt import read_prompt

    prompt = read_prompt([word for word in (arguments.value("-p"), *arguments.words) if word])
    from atomic.cli.turn import TurnRequest, run_turn

    request = TurnRequest(
        prompt.text,
        agent=arguments.value("--agent"),
        model=arguments.value("--model"),
        output=arguments.value("--output") or "text",
        record=arguments.value("--record"),
    )
    if not prompt.said.lstrip().startswith(("/", "@")):
        return run_turn(request)
    from atomic.cli.slash_commands import run_prompt

    return run_prompt(request, prompt)


def _help() -> int:
    from atomic.cli.help import top_help

    put(top_help())
    return ExitCode.DONE


def _prepare() -> None:
    """Before anything that may take its time: signals end it with their exit code, and logs do not reach the user."""
    import atexit
    import gc
    import logging

    from atomic.cli.signals import raise_on_signals

    raise_on_signals()
    atexit.register(gc.freeze)  # else Python looks for garbage in all that the system takes back a moment later
    if is_debugging():
        logging.basicConfig(level=logging.DEBUG)
    else:
        logging.getLogger().addHandler(logging.NullHandler())
