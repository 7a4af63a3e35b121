"""The texts of `--help`, made from the table of verbs."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.flags import HELP, ConfigFlag, Flag, config_flags
from atomic.cli.verbs import CHAT, TURN, VERBS, VERSION, Verb


def top_help() -> str:
    """Return the help of `atomic` itself."""
    usage = [("atomic [flags] [PROMPT...]", "the screen: talk to an agent, run workflows")]
    usage += [('atomic -p "PROMPT" [flags]', TURN[0].help)]
    usage += [(verb.usage, verb.summary) for verb in VERBS.values()]
    return "\n".join(
        (
            "atomic: the workflow layer for coding agents",
            "",
            "usage:",
            *_columns(usage),
            "",
            "flags of -p and of the screen (--output only with -p):",
            *flag_rows(TURN[1:]),
            "",
            "flags of the screen:",
            *flag_rows(CHAT),
            "",
            "other flags:",
            *flag_rows((VERSION, HELP)),
            "",
            "Flags go before the prompt; a prompt of one word or in quotes right after -p may be followed by flags.",
            "-- ends the flags: in atomic -p -- --why, --why is the prompt.",
            "Standard input, if it is not a terminal, is added to the prompt; - always reads it.",
            "",
        )
    )


def verb_help(verb: Verb, flags: Sequence[Flag] = ()) -> str:
    """Return the help of a verb or a group of verbs.

    `flags` include the flags of its workflow.
    """
    lines = [f"atomic {verb.path}: {verb.summary}", "", "usage:"]
    if verb.verbs:
        lines += _columns([(one.usage, one.summary) for one in verb.verbs.values()])
        lines += ["", f"atomic {verb.path} means atomic {verb.path} {verb.default}. Each of them has its own --help."]
        return "\n".join((*lines, ""))
    lines.append(f"  {verb.usage}" if "[flags]" in verb.usage else f"  {verb.usage} [flags]")
    lines += ["", "flags:", *flag_rows(verb.flags), ""]
    more = [flag for flag in flags if flag not in verb.flags]
    title = "the workflow's own flags:"
    if verb.resumes:
        more = [flag for flag in more if not isinstance(flag, ConfigFlag) or flag.is_for_resume]
        if not more:
            title = "flags for a run of Ralph (for another workflow: atomic resume ID --help):"
            more = [flag for flag in ralph_flags() if flag.is_for_resume]
    if more:
        lines += [title, *flag_rows(more), ""]
    return "\n".join(lines)


def ralph_flags() -> list[ConfigFlag]:
    """Return the flags of the built-in workflow."""
    from atomic.config.ralph_flags import DEFAULTS, DESCRIPTIONS, ON_RESUME

    return config_flags(DEFAULTS, DESCRIPTIONS, ON_RESUME)


def flag_rows(flags: Sequence[Flag]) -> list[str]:
    """Return a line for each flag."""
    return _columns([(f"{', '.join(flag.names)} {flag.value}".strip(), flag.help) for flag in flags])


def _columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(left) for left, _ in rows)
    return [f"  {left:{width}}  {right}" for left, right in rows]
