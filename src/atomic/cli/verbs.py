"""What the command line knows: verbs and their flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atomic.cli.arguments import Arguments, Flag
from atomic.cli.errors import UsageError

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


_KIND = Flag("--kind", value="KIND", choices=("command", "skill", "agent"), help="only commands, skills or agents")


class Verb:
    """A command of its own name: something to run, or a group of verbs, one of which is meant if none is named.

    `words` are those that it takes, as `--help` shows them: `NAME`, `[NAME]` if it can be left out, `NAME...` if there
    may be many.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        flags: Sequence[Flag] = (),
        *,
        words: Sequence[str] = (),
        run: Callable[[Arguments], int] | None = None,
        verbs: Sequence[Verb] = (),
        default: str = "",
    ) -> None:
        self.name, self.summary, self.flags, self.words = name, summary, (*flags, HELP), words
        self.run, self.verbs, self.default = run, {verb.name: verb for verb in verbs}, default
        self.path = name  # with the name of its group
        for verb in verbs:
            verb.path = f"{name} {verb.name}"

    @property
    def usage(self) -> str:
        """How it is written."""
        takes = (f"[{'|'.join(self.verbs)}]",) if self.verbs else self.words
        return " ".join(("atomic", self.path, *takes))

    def check(self, words: Sequence[str]) -> None:
        """Raises UsageError if it takes more words, or fewer."""
        needed = [word for word in self.words if not word.startswith("[")]
        if len(words) < len(needed):
            raise UsageError(f"atomic {self.path} needs a {needed[len(words)].strip('.')}: {self.usage}")
        takes_many = any("..." in word for word in self.words)
        if len(words) > len(self.words) and not takes_many:
            raise UsageError(f'atomic {self.path} takes no "{words[len(self.words)]}" (atomic {self.path} --help)')


# Each is imported only to be run: `--help` and `--version` pay for none of them.


def _doctor(arguments: Arguments) -> int:
    from atomic.cli.doctor import run_doctor

    return run_doctor(as_json=arguments.has("--json"))


def _models(arguments: Arguments) -> int:
    from atomic.cli.models import run_models

    return run_models(arguments.value("--agent"), as_json=arguments.has("--json"))


def _entities_list(arguments: Arguments) -> int:
    from atomic.cli.entities import list_entities

    return list_entities(arguments.value("--kind"), as_json=arguments.has("--json"))


def _entities_show(arguments: Arguments) -> int:
    from atomic.cli.entities import show_entity

    name, *rest = arguments.words
    return show_entity(name, " ".join(rest), kind=arguments.value("--kind"), as_json=arguments.has("--json"))


def _mcp_list(arguments: Arguments) -> int:
    from atomic.cli.mcp import list_servers

    return list_servers(as_json=arguments.has("--json"))


_ENTITIES = (
    Verb("list", "all that are found, of every tool", (_KIND, _JSON), run=_entities_list),
    Verb(
        "show",
        "which file defines a name, which ones it hides, what it expands to",
        (_KIND, _JSON),
        words=("NAME", "[ARGUMENTS...]"),
        run=_entities_show,
    ),
)
_MCP = (Verb("list", "all that are configured, and where", (_JSON,), run=_mcp_list),)

VERBS = {
    verb.name: verb
    for verb in (
        Verb("entities", "commands, skills and agents of every tool", verbs=_ENTITIES, default="list"),
        Verb("mcp", "MCP servers of every tool", verbs=_MCP, default="list"),
        Verb("models", "the models of an agent", (_AGENT, _JSON), run=_models),
        Verb("doctor", "which agents can be used here, and what is missing for the others", (_JSON,), run=_doctor),
    )
}
