"""What the command line knows: verbs and their flags."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.cli.arguments import Flag

HELP = Flag("-h", "--help", help="this text")
_AGENT = Flag("-a", "--agent", value="AGENT", help="claude, opencode, copilot, acp:NAME or replay:FILE")
_JSON = Flag("--json", help="for programs: JSON on standard output")

TURN = (
    Flag("-p", value="PROMPT", optional=True, help="one turn of an agent, without a screen"),
    _AGENT,
    Flag("-m", "--model", value="MODEL", help="one of the agent's models: see atomic models"),
    Flag(
        "--output",
        value="FORMAT",
        choices=("text", "json", "stream-json"),
        help="text (as it comes), json (one object at the end), stream-json (one event a line)",
    ),
    Flag("--record", value="FILE", help="write what the agent does to a file that replay:FILE plays"),
)
VERSION = Flag("--version", help="the version of Atomic and of its SDK")
TOP = (*TURN, VERSION, HELP)


class Verb:
    """A command of its own name."""

    def __init__(self, name: str, summary: str, flags: Sequence[Flag]) -> None:
        self.name, self.summary, self.flags = name, summary, (*flags, HELP)


VERBS = {
    verb.name: verb
    for verb in (
        Verb("doctor", "which agents can be used here, and what is missing for the others", (_JSON,)),
        Verb("models", "the models of an agent", (_AGENT, _JSON)),
    )
}
