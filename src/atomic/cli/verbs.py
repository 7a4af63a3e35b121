"""What the command line knows: verbs and their flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.flags import HELP, HOW, LINES, RUN, TRUST, Flag

TYPE_CHECKING = False  # typing itself would cost every start
if TYPE_CHECKING:
    from atomic.cli.workflow_flags import Find

_AGENT = Flag("-a", "--agent", value="AGENT", help="claude, opencode, copilot, acp:NAME or replay:FILE")
_JSON = Flag("--json", help="for programs: JSON on standard output")

TURN = (
    Flag("-p", value="PROMPT", optional=True, help="run one agent turn without the screen"),
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
THEMES = ("dark", "light", "ansi", "contrast")
CHAT = (
    Flag("--theme", value="THEME", choices=THEMES, help="dark, light, ansi (the terminal's own colours) or contrast"),
    Flag("--resume", value="ID", help="continue a conversation"),
    Flag("--plain", help="plain lines: for screen readers and simple terminals"),
    Flag("--web", help="the screen in a browser on this machine"),
    Flag("--port", value="PORT", help="the port of --web (default: any free one)"),
)
VERSION = Flag("--version", help="the version of Atomic and of its SDK")
TOP = (*TURN, *CHAT, VERSION, HELP)


PROMPT = "[PROMPT...]"  # all that follows, whatever it contains
_KIND = Flag("--kind", value="KIND", choices=("command", "skill", "agent"), help="only commands, skills or agents")


class Verb:
    """A command of its own name: something to run, or a group of verbs, one of which is meant if none is named.

    `words` are those that it takes, as `--help` shows them: `NAME`, `[NAME]` if it can be left out, `NAME...` if there
    may be many. `run` names the function that runs it, as `module:function` of this package: `--help` and `--version`
    import none of them. `workflow` finds the workflow that one of them means, whose flags it takes too.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        flags: Sequence[Flag] = (),
        *,
        words: Sequence[str] = (),
        run: str = "",
        verbs: Sequence[Verb] = (),
        default: str = "",
        workflow: Callable[[Sequence[str]], Find] | None = None,
    ) -> None:
        self.name, self.summary, self.flags, self.words = name, summary, (*flags, HELP), words
        self.run, self.verbs, self.default = run, {verb.name: verb for verb in verbs}, default
        self.workflow = workflow
        self.path = name  # with the name of its group
        for verb in verbs:
            verb.path = f"{name} {verb.name}"

    def load(self) -> Callable[[Arguments], int]:
        """Import the function that runs it."""
        from importlib import import_module

        module, function = self.run.split(":")
        return getattr(import_module(f"atomic.cli.{module}"), function)

    @property
    def resumes(self) -> bool:
        """Whether its first word is a run that it continues."""
        return self.workflow is not None and self.words[:1] == ("ID",)

    @property
    def leading(self) -> int | None:
        """How many words stand before a prompt; None if it takes none."""
        return self.words.index(PROMPT) if PROMPT in self.words else None

    @property
    def usage(self) -> str:
        """How it is written: flags go before a prompt."""
        takes = (f"[{'|'.join(self.verbs)}]",) if self.verbs else self.words
        if PROMPT in takes:
            takes = (*takes[:-1], "[flags]", PROMPT)
        return " ".join(("atomic", self.path, *takes))

    def check(self, words: Sequence[str]) -> None:
        """Raises UsageError if it takes more words, or fewer."""
        needed = [word for word in self.words if not word.startswith("[")]
        if len(words) < len(needed):
            missing = needed[len(words)].strip(".")
            article = "an" if missing[0] in "AEIO" else "a"
            raise UsageError(f"atomic {self.path} needs {article} {missing}: {self.usage}")
        takes_many = any("..." in word for word in self.words)
        if len(words) > len(self.words) and not takes_many:
            raise UsageError(f'atomic {self.path} takes no "{words[len(self.words)]}" (atomic {self.path} --help)')


def _workflow_to_run(words: Sequence[str]) -> Find:
    from atomic.cli.run import workflow_finder

    return workflow_finder(words)


def _workflow_of_session(words: Sequence[str]) -> Find:
    from atomic.cli.resume import find_workflow

    return find_workflow


_STATUSES = ("running", "paused", "completed", "failed", "cancelled", "blocked", "chat", "interrupted")
_STATUS = Flag("--status", value="STATUS", choices=_STATUSES, help="only those with that status")
_SESSIONS = (
    Verb(
        "list",
        "all runs, the newest first",
        (_STATUS, Flag("--project", help="only those of this project"), _JSON),
        run="sessions:list_sessions",
    ),
    Verb(
        "show",
        "one run: its graph with what ran, who worked when, what it cost",
        (Flag("--html", help="as a page of its own, on standard output or in FILE"), _JSON),
        words=("ID", "[FILE]"),
        run="sessions:show_session",
    ),
    Verb("report", "its report", words=("ID",), run="sessions:report_session"),
    Verb("export", "all of it as one archive, without secrets", words=("ID", "FILE"), run="archive:export_session"),
    Verb(
        "prune",
        "delete old ones; it shows them and asks",
        (
            Flag("--older-than", value="AGE", help="only those unchanged for that long: 30d, 12h"),
            _STATUS,
            Flag("--yes", help="delete without asking"),
        ),
        run="archive:prune_sessions",
    ),
)
_TASKS = (
    Verb("show", "all tasks, and what each waits for", (_JSON,), words=("FILE",), run="tasks:show_tasks"),
    Verb("next", "the task that may start now", (_JSON,), words=("FILE",), run="tasks:next_task"),
    Verb(
        "convert",
        "a feature list as tasks",
        (Flag("--to", value="FILE", help="write to a file that is not there yet"),),
        words=("FILE",),
        run="tasks:convert_tasks",
    ),
    Verb("check", "all that is wrong with it", (_JSON,), words=("FILE",), run="tasks:check_tasks"),
)


_WORKFLOWS = (
    Verb("list", "all that are found; none of their code runs", (_JSON,), run="workflows:list_workflows"),
    Verb("show", "what a workflow's file says about itself", (_JSON,), words=("NAME",), run="workflows:show_workflow"),
    Verb("check", "load all of them and show every problem", (TRUST,), run="workflows:check_workflows"),
    Verb(
        "graph",
        "draw a workflow",
        (Flag("--mermaid", help="as Mermaid text"), Flag("--svg", help="as SVG"), TRUST),
        words=("NAME",),
        run="workflows:draw_workflow",
    ),
    Verb("new", "write a first file for a workflow", words=("NAME",), run="workflows:new_workflow"),
)
_ENTITIES = (
    Verb("list", "all that are found, of every tool", (_KIND, _JSON), run="entities:list_entities"),
    Verb(
        "show",
        "which file defines a name, which ones it hides, what it expands to",
        (_KIND, _JSON),
        words=("NAME", "[ARGUMENTS...]"),
        run="entities:show_entity",
    ),
)
_MCP = (Verb("list", "all that are configured, and where", (_JSON,), run="mcp:list_servers"),)

_CHAT = (_AGENT, *(flag for flag in TURN if flag.name in ("--model", "--record")), *CHAT)
VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "chat",
            "talk with an agent on a screen, as plain atomic does",
            _CHAT,
            words=(PROMPT,),
            run="chat:run_chat",
        ),
        Verb(
            "run", "run a workflow", RUN, words=("WORKFLOW", PROMPT), run="run:run_command", workflow=_workflow_to_run
        ),
        Verb(
            "resume", "continue a run", HOW, words=("ID",), run="resume:resume_command", workflow=_workflow_of_session
        ),
        Verb(
            "answer",
            "answer a run's question and continue it",
            (*HOW, Flag("--no-resume", help="only save the answer")),
            words=("ID", "[QUESTION]", "ANSWER"),
            run="answer:answer_command",
            workflow=_workflow_of_session,
        ),
        Verb(
            "stop",
            "pause a run in another terminal",
            (Flag("--cancel", help="end it for good: it cannot be resumed"),),
            words=("ID",),
            run="stop:stop_command",
        ),
        Verb(
            "salvage",
            "put your uncommitted files back as they were before a run",
            (Flag("--force", help="also replace files that have changed since the run; a copy is kept"),),
            words=("ID", "[PATH...]"),
            run="salvage:salvage_command",
        ),
        Verb("attach", "watch a run in another terminal", (LINES,), words=("ID",), run="attach:attach_command"),
        Verb("workflows", "workflows: the project's, your own, built-in ones", verbs=_WORKFLOWS, default="list"),
        Verb(
            "trust",
            "show what this project could run, and approve it",
            (
                Flag("--show", help="only show it: the items, what changed, the hash"),
                _JSON,
                Flag("--revoke", help="take the approval back"),
            ),
            words=("[HASH]",),
            run="trust:run_trust",
        ),
        Verb("entities", "commands, skills and agents of every tool", verbs=_ENTITIES, default="list"),
        Verb("sessions", "runs, past and present", verbs=_SESSIONS, default="list"),
        Verb("tasks", "a list of tasks", verbs=_TASKS, default="show"),
        Verb(
            "replay",
            "play a recording of agents again",
            (
                Flag("--speed", value="N", help="how many times as fast, or max (1)"),
                Flag("--no-changes", help="leave the files as they are"),
                _JSON,
            ),
            words=("FILE",),
            run="replay:run_replay",
        ),
        Verb("demo", "watch a run without an agent: real files, commits and tests", run="demo:run_demo"),
        Verb("init", "begin a project: configuration, example", run="init:init_project"),
        Verb("config", "what is set, and where", (_JSON,), run="config:show_config"),
        Verb("completion", "the script for a shell", words=("SHELL",), run="completion:print_script"),
        Verb("mcp", "MCP servers of every tool", verbs=_MCP, default="list"),
        Verb("models", "the models of an agent", (_AGENT, _JSON), run="models:run_models"),
        Verb("doctor", "which agents can be used here, and what the others need", (_JSON,), run="doctor:run_doctor"),
    )
}
