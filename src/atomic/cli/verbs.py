"""What the command line knows: verbs and their flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atomic.cli.arguments import Arguments
from atomic.cli.errors import UsageError
from atomic.flags import HELP, HOW, LINES, RUN, TRUST, Flag

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
    may be many. `workflow` finds the workflow that one of them means, whose flags it takes too.
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
        workflow: Callable[[Sequence[str]], Find] | None = None,
    ) -> None:
        self.name, self.summary, self.flags, self.words = name, summary, (*flags, HELP), words
        self.run, self.verbs, self.default = run, {verb.name: verb for verb in verbs}, default
        self.workflow = workflow
        self.path = name  # with the name of its group
        for verb in verbs:
            verb.path = f"{name} {verb.name}"

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


# Each is imported only to be run: `--help` and `--version` pay for none of them.


def run_chat(arguments: Arguments) -> int:
    from atomic.cli.chat import run_chat

    return run_chat(arguments)


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


def _workflows_list(arguments: Arguments) -> int:
    from atomic.cli.workflows import list_workflows

    return list_workflows(as_json=arguments.has("--json"))


def _workflows_show(arguments: Arguments) -> int:
    from atomic.cli.workflows import show_workflow

    return show_workflow(arguments.words[0], as_json=arguments.has("--json"))


def _workflows_check(arguments: Arguments) -> int:
    from atomic.cli.workflows import check_workflows

    return check_workflows(arguments.value("--trust"))


def _workflows_graph(arguments: Arguments) -> int:
    from atomic.cli.workflows import draw_workflow

    if arguments.has("--mermaid") and arguments.has("--svg"):
        raise UsageError("--mermaid and --svg exclude each other: choose one")
    return draw_workflow(
        arguments.words[0], arguments.value("--trust"), mermaid=arguments.has("--mermaid"), svg=arguments.has("--svg")
    )


def _workflows_new(arguments: Arguments) -> int:
    from atomic.cli.workflows import new_workflow

    return new_workflow(arguments.words[0])


def _trust(arguments: Arguments) -> int:
    from atomic.cli.trust import run_trust

    return run_trust(arguments)


def _sessions_list(arguments: Arguments) -> int:
    from atomic.cli.sessions import list_sessions

    project = arguments.has("--project")
    return list_sessions(arguments.value("--status"), here=project, as_json=arguments.has("--json"))


def _sessions_show(arguments: Arguments) -> int:
    from atomic.cli.sessions import show_page, show_session

    if arguments.has("--html"):
        if arguments.has("--json"):
            raise UsageError("--html and --json exclude each other: choose one")
        return show_page(*arguments.words)
    if len(arguments.words) > 1:
        raise UsageError("a FILE is only for --html: atomic sessions show ID --html FILE")
    return show_session(arguments.words[0], as_json=arguments.has("--json"))


def _sessions_report(arguments: Arguments) -> int:
    from atomic.cli.sessions import report_session

    return report_session(arguments.words[0])


def _sessions_export(arguments: Arguments) -> int:
    from atomic.cli.archive import export_session

    return export_session(*arguments.words)


def _sessions_prune(arguments: Arguments) -> int:
    from atomic.cli.archive import prune_sessions

    return prune_sessions(arguments.value("--older-than"), arguments.value("--status"), yes=arguments.has("--yes"))


def _tasks_show(arguments: Arguments) -> int:
    from atomic.cli.tasks import show_tasks

    return show_tasks(arguments.words[0], as_json=arguments.has("--json"))


def _tasks_next(arguments: Arguments) -> int:
    from atomic.cli.tasks import next_task

    return next_task(arguments.words[0], as_json=arguments.has("--json"))


def _tasks_check(arguments: Arguments) -> int:
    from atomic.cli.tasks import check_tasks

    return check_tasks(arguments.words[0], as_json=arguments.has("--json"))


def _tasks_convert(arguments: Arguments) -> int:
    from atomic.cli.tasks import convert_tasks

    return convert_tasks(arguments.words[0], arguments.value("--to"))


def _config(arguments: Arguments) -> int:
    from atomic.cli.config import show_config

    return show_config(as_json=arguments.has("--json"))


def _init(arguments: Arguments) -> int:
    from atomic.cli.init import init_project

    return init_project()


def _completion(arguments: Arguments) -> int:
    from atomic.cli.completion import SCRIPTS, print_script

    shell = arguments.words[0]
    if shell not in SCRIPTS:
        raise UsageError(f'No completion for "{shell}": choose one of {", ".join(SCRIPTS)}')
    return print_script(shell)


def _replay(arguments: Arguments) -> int:
    from atomic.cli.replay import ReplayRequest, run_replay

    return run_replay(
        ReplayRequest(
            arguments.words[0],
            speed=arguments.value("--speed"),
            as_json=arguments.has("--json"),
            changes=not arguments.has("--no-changes"),
        )
    )


def _demo(arguments: Arguments) -> int:
    from atomic.cli.demo import run_demo

    return run_demo()


def _run(arguments: Arguments) -> int:
    from atomic.cli.run import run_command

    return run_command(arguments)


def _workflow_to_run(words: Sequence[str]) -> Find:
    from atomic.cli.run import workflow_finder

    return workflow_finder(words)


def _resume(arguments: Arguments) -> int:
    from atomic.cli.resume import resume_command

    return resume_command(arguments)


def _workflow_of_session(words: Sequence[str]) -> Find:
    from atomic.cli.resume import workflow_of

    return workflow_of


def _answer(arguments: Arguments) -> int:
    from atomic.cli.answer import answer_command

    return answer_command(arguments)


def _stop(arguments: Arguments) -> int:
    from atomic.cli.stop import stop_command

    return stop_command(arguments.words[0], cancel=arguments.has("--cancel"))


def _salvage(arguments: Arguments) -> int:
    from atomic.cli.salvage import salvage_command

    id, *paths = arguments.words
    return salvage_command(id, paths, force=arguments.has("--force"))


def _attach(arguments: Arguments) -> int:
    from atomic.cli.attach import attach_command

    return attach_command(arguments.words[0], as_json=arguments.has("--json"))


_STATUSES = ("running", "paused", "completed", "failed", "cancelled", "blocked", "chat", "interrupted")
_STATUS = Flag("--status", value="STATUS", choices=_STATUSES, help="only those with that status")
_SESSIONS = (
    Verb(
        "list",
        "all runs, the newest first",
        (_STATUS, Flag("--project", help="only those of this project"), _JSON),
        run=_sessions_list,
    ),
    Verb(
        "show",
        "one run: its graph with what ran, who worked when, what it cost",
        (Flag("--html", help="as a page of its own, on standard output or in FILE"), _JSON),
        words=("ID", "[FILE]"),
        run=_sessions_show,
    ),
    Verb("report", "its report", words=("ID",), run=_sessions_report),
    Verb("export", "all of it as one archive, without secrets", words=("ID", "FILE"), run=_sessions_export),
    Verb(
        "prune",
        "delete old ones; it shows them and asks",
        (
            Flag("--older-than", value="AGE", help="only those unchanged for that long: 30d, 12h"),
            _STATUS,
            Flag("--yes", help="delete without asking"),
        ),
        run=_sessions_prune,
    ),
)
_TASKS = (
    Verb("show", "all tasks, and what each waits for", (_JSON,), words=("FILE",), run=_tasks_show),
    Verb("next", "the task that may start now", (_JSON,), words=("FILE",), run=_tasks_next),
    Verb(
        "convert",
        "a feature list as tasks",
        (Flag("--to", value="FILE", help="write to a file that is not there yet"),),
        words=("FILE",),
        run=_tasks_convert,
    ),
    Verb("check", "all that is wrong with it", (_JSON,), words=("FILE",), run=_tasks_check),
)


_WORKFLOWS = (
    Verb("list", "all that are found; none of their code runs", (_JSON,), run=_workflows_list),
    Verb("show", "what a workflow's file says about itself", (_JSON,), words=("NAME",), run=_workflows_show),
    Verb("check", "load all of them and show every problem", (TRUST,), run=_workflows_check),
    Verb(
        "graph",
        "draw a workflow",
        (Flag("--mermaid", help="as Mermaid text"), Flag("--svg", help="as SVG"), TRUST),
        words=("NAME",),
        run=_workflows_graph,
    ),
    Verb("new", "write a first file for a workflow", words=("NAME",), run=_workflows_new),
)
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

_CHAT = (_AGENT, *(flag for flag in TURN if flag.name in ("--model", "--record")), *CHAT)
VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "chat",
            "talk with an agent on a screen, as plain atomic does",
            _CHAT,
            words=(PROMPT,),
            run=run_chat,
        ),
        Verb("run", "run a workflow", RUN, words=("WORKFLOW", PROMPT), run=_run, workflow=_workflow_to_run),
        Verb("resume", "continue a run", HOW, words=("ID",), run=_resume, workflow=_workflow_of_session),
        Verb(
            "answer",
            "answer a run's question and continue it",
            (*HOW, Flag("--no-resume", help="only save the answer")),
            words=("ID", "[QUESTION]", "ANSWER"),
            run=_answer,
            workflow=_workflow_of_session,
        ),
        Verb(
            "stop",
            "pause a run in another terminal",
            (Flag("--cancel", help="end it for good: it cannot be resumed"),),
            words=("ID",),
            run=_stop,
        ),
        Verb(
            "salvage",
            "put your uncommitted files back as they were before a run",
            (Flag("--force", help="also replace files that have changed since the run; a copy is kept"),),
            words=("ID", "[PATH...]"),
            run=_salvage,
        ),
        Verb("attach", "watch a run in another terminal", (LINES,), words=("ID",), run=_attach),
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
            run=_trust,
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
            run=_replay,
        ),
        Verb("demo", "watch a run without an agent: real files, commits and tests", run=_demo),
        Verb("init", "begin a project: configuration, example", run=_init),
        Verb("config", "what is set, and where", (_JSON,), run=_config),
        Verb("completion", "the script for a shell", words=("SHELL",), run=_completion),
        Verb("mcp", "MCP servers of every tool", verbs=_MCP, default="list"),
        Verb("models", "the models of an agent", (_AGENT, _JSON), run=_models),
        Verb("doctor", "which agents can be used here, and what the others need", (_JSON,), run=_doctor),
    )
}
