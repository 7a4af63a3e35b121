"""The texts of `--help`, made from the table of verbs."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.base.flags import HELP, ConfigFlag, Flag, config_flags
from atomic.cli.streams import put
from atomic.cli.verbs import CHAT, GROUPS, TURN, VERBS, VERSION, Verb, expand

EXAMPLES = (
    ("atomic demo", "watch Ralph build a small program, without an agent"),
    ('atomic ralph --max-cost 5 "add a login page"', "let Ralph work until it is done and tested, for at most $5"),
    ("atomic resume", "continue the last run of this folder"),
    ('git diff | atomic -p "review this"', "one turn of an agent, for scripts and pipes"),
    ("atomic workflows new my-flow", "write a workflow of your own; atomic run my-flow runs it"),
)

_SHOWN_VERBS = 4  # of a group, so that the list of all commands fits a terminal


def show_help(arguments: Arguments) -> int:
    """Print the help of Atomic, or of the verb that is named."""
    words = expand(arguments.words)
    if not words:
        put(top_help())
        return ExitCode.DONE
    verb = VERBS.get(words[0])
    if verb is None:
        hint = did_you_mean(words[0], VERBS, otherwise="atomic --help lists them")
        raise UsageError(f'Unknown command: "{words[0]}"{hint}')
    if verb.workflow is not None:
        from atomic.cli.main import run_verb

        return run_verb([*words[:2], "--help"])
    if len(words) > 1 and verb.verbs:
        if words[1] not in verb.verbs:
            there_are = f"there are: {', '.join(verb.verbs)}"
            hint = did_you_mean(words[1], verb.verbs, otherwise=there_are)
            raise UsageError(f'Unknown command: "{" ".join(words[:2])}"{hint}')
        verb = verb.verbs[words[1]]
    put(verb_help(verb))
    return ExitCode.DONE


def show_version(arguments: Arguments) -> int:
    """Print the version."""
    from atomic import __version__

    put(f"atomic {__version__}\n")
    return ExitCode.DONE


def top_help() -> str:
    """Return the help of `atomic` itself."""
    usage = [
        ("atomic [flags] [PROMPT...]", "the screen: talk to an agent, run workflows"),
        ('atomic -p "PROMPT" [flags]', TURN[0].help),
    ]
    widest = max(len(_short_usage(verb)) for verb in VERBS.values())
    lines = ["atomic: the workflow layer for coding agents", "", "Examples", *_columns(EXAMPLES), ""]
    for title, verbs in GROUPS.items():
        rows = [(_short_usage(verb), verb.summary) for verb in verbs]
        lines += [title, *_columns([*(usage if title == "Start" else ()), *rows], widest), ""]
    lines += [
        "Flags of -p and of the screen (--output and --json only with -p)",
        *flag_rows(TURN[1:]),
        "",
        "Flags of the screen",
        *flag_rows(CHAT),
        "",
        "Other flags",
        *flag_rows((VERSION, HELP)),
        "",
        "atomic help COMMAND shows the flags of a command: atomic help run, atomic help ralph.",
        "Flags go before the prompt; a prompt of one word or in quotes right after -p may be followed by flags.",
        "-- ends the flags: in atomic -p -- --why, --why is the prompt.",
        "Standard input, if it is not a terminal, is added to the prompt; - always reads it.",
        "",
    ]
    return "\n".join(lines)


def _short_usage(verb: Verb) -> str:
    """Return the usage of a verb; of a group with many verbs only the first ones."""
    names = list(verb.verbs)
    if len(names) <= _SHOWN_VERBS:
        return verb.usage
    return f"atomic {verb.path} [{'|'.join(names[:_SHOWN_VERBS])}|...]"


def verb_help(verb: Verb, flags: Sequence[Flag] = (), workflow: tuple[str, str] | None = None) -> str:
    """Return the help of a verb or a group of verbs.

    `flags` include the flags of the `workflow`: its name and its description.
    """
    more = [flag for flag in flags if flag not in verb.flags]
    if workflow is not None and not verb.resumes:
        return _workflow_help(verb, *workflow, more)
    lines = [f"atomic {verb.path}: {verb.summary}", "", "usage:"]
    if verb.verbs:
        lines += _columns([(one.usage, one.summary) for one in verb.verbs.values()])
        lines += ["", f"atomic {verb.path} means atomic {verb.path} {verb.default}. Each of them has its own --help."]
        return "\n".join((*lines, ""))
    lines.append(f"  {verb.usage}" if "[flags]" in verb.usage else f"  {verb.usage} [flags]")
    lines += ["", "flags:", *flag_rows(verb.flags), ""]
    title = "the workflow's own flags:"
    if verb.resumes:
        more = [flag for flag in more if not isinstance(flag, ConfigFlag) or flag.is_for_resume]
        if not more:
            title = "flags for a run of Ralph (for another workflow: atomic resume ID --help):"
            more = [flag for flag in ralph_flags() if flag.is_for_resume]
    if more:
        lines += [title, *flag_rows(more), ""]
    return "\n".join(lines)


def _workflow_help(verb: Verb, name: str, description: str, own: Sequence[Flag]) -> str:
    """Return the help of one workflow, its own flags first."""
    title = f"atomic {verb.path} {name}"
    lines = [f"{title}: {description}" if description else title, ""]
    lines += ["usage:", f"  {title} [flags] [PROMPT...]", ""]
    if own:
        lines += ["the workflow's own flags:", *flag_rows(own), ""]
    lines += ["flags of every run:", *flag_rows(verb.flags), ""]
    return "\n".join(lines)


def ralph_flags() -> list[ConfigFlag]:
    """Return the flags of the built-in workflow."""
    from atomic.config.ralph_flags import DEFAULTS, DESCRIPTIONS, ON_RESUME

    return config_flags(DEFAULTS, DESCRIPTIONS, ON_RESUME)


def flag_rows(flags: Sequence[Flag]) -> list[str]:
    """Return a line for each flag."""
    return _columns([(f"{', '.join(flag.names)} {flag.value}".strip(), flag.help) for flag in flags])


def _columns(rows: Sequence[tuple[str, str]], width: int = 0) -> list[str]:
    width = max(width, *(len(left) for left, _ in rows))
    return [f"  {left:{width}}  {right}" for left, right in rows]
