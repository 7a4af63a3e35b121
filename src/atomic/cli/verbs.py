"""The verbs of `atomic` and their flags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.flags import AGENT, EVERY, HELP, HOW, LINES, RUN, TRUST, Flag

TYPE_CHECKING = False  # typing itself would cost every start
if TYPE_CHECKING:
    from atomic.cli.workflow_flags import Find

_AGENT = Flag("-a", "--agent", value="AGENT", help=AGENT)
_JSON = Flag("--json", help="for programs: JSON on standard output")

TURN = (
    Flag("-p", value="PROMPT", optional=True, help="run one agent turn without the screen"),
    _AGENT,
    Flag("-m", "--model", value="MODEL", help="one of the agent's models: see atomic models"),
    Flag(
        "--output",
        value="FORMAT",
        choices=("text", "json", "stream-json"),
        help="text (as it comes), json (one object at the end), stream-json (one event per line)",
    ),
    Flag("--json", help="the same as --output json"),
    Flag("--record", value="FILE", help="record the agent's events to a file that replay:FILE plays"),
)
THEMES = ("dark", "light", "ansi", "contrast")
CHAT = (
    Flag("--theme", value="THEME", choices=THEMES, help="dark, light, ansi (the terminal's own colours) or contrast"),
    Flag("--resume", value="ID", help="continue a conversation"),
    Flag("-c", "--continue", help="continue the last conversation in this folder"),
    Flag("--plain", help="plain lines, for screen readers and simple terminals"),
    Flag("--web", help="show the screen in a browser on this machine"),
    Flag("--port", value="PORT", help="the port of --web (default: any free one)"),
)
VERSION = Flag("-V", "--version", help="print the version of Atomic")
TOP = (*TURN, *CHAT, VERSION, HELP)


PROMPT = "[PROMPT...]"  # all words that follow
_KIND = Flag("--kind", value="KIND", choices=("command", "skill", "agent"), help="only commands, skills or agents")


class Verb:
    """A command with a name: a function to run, or a group of verbs with a default.

    `words` are its arguments as `--help` shows them: `NAME`, `[NAME]` if it is
    optional, `NAME...` if there can be several. `run` names its function as
    `module:function` of this package, so that `--help` and `--version` import none of
    them. `workflow` finds the workflow that an argument names; the verb also takes the
    flags of that workflow. A shorthand has the words that it `stands_for` instead.
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
        stands_for: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.path = name  # with the name of its group
        self.summary = summary
        self.flags = (*flags, HELP)
        self.words = words
        self.run = run
        self.verbs = {verb.name: verb for verb in verbs}
        self.default = default
        self.workflow = workflow
        self.stands_for = stands_for
        for verb in verbs:
            verb.path = f"{name} {verb.name}"

    def load(self) -> Callable[[Arguments], int]:
        """Import the function that runs the verb."""
        from importlib import import_module

        module, function = self.run.split(":")
        return getattr(import_module(f"atomic.cli.{module}"), function)

    @property
    def resumes(self) -> bool:
        """Return whether the first argument is a run to continue."""
        return self.workflow is not None and self.words[0].strip("[]") == "ID"

    @property
    def leading(self) -> int | None:
        """Return the number of arguments before the prompt; None without a prompt."""
        return self.words.index(PROMPT) if PROMPT in self.words else None

    @property
    def usage(self) -> str:
        """Return the usage line; flags are shown before a prompt."""
        takes = (f"[{'|'.join(self.verbs)}]",) if self.verbs else self.words
        if PROMPT in takes:
            takes = (*takes[:-1], "[flags]", PROMPT)
        return " ".join(("atomic", self.path, *takes))

    @property
    def needed(self) -> list[str]:
        """Return the arguments that must be given."""
        return [word for word in self.words if not word.startswith("[")]

    def check(self, words: Sequence[str]) -> None:
        """Raise UsageError for missing or extra arguments."""
        if len(words) < len(self.needed):
            missing = self.needed[len(words)].strip(".")
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


def expand(words: Sequence[str]) -> list[str]:
    """Return a command line with its shorthand replaced."""
    verb = VERBS.get(words[0]) if words else None
    if verb is None or not verb.stands_for:
        return [*words]
    return [*verb.stands_for, *words[1:]]


_STATUSES = ("running", "paused", "completed", "failed", "cancelled", "blocked", "chat", "interrupted")
_STATUS = Flag("--status", value="STATUS", choices=_STATUSES, help="only runs with this status")
_SESSIONS = (
    Verb(
        "list",
        "list all runs, newest first",
        (_STATUS, Flag("--project", help="only runs of this project"), _JSON),
        run="sessions:list_sessions",
    ),
    Verb(
        "show",
        "show one run: its graph, a timeline of its agents, its cost",
        (Flag("--html", help="as an HTML page, on standard output or in a new FILE"), _JSON),
        words=("ID", "[FILE]"),
        run="sessions:show_session",
    ),
    Verb("report", "print the report of a run", words=("ID",), run="sessions:report_session"),
    Verb("result", "print what the workflow of a run has returned", words=("ID",), run="sessions:print_result"),
    Verb("export", "write a run to one archive, without secrets", words=("ID", "FILE"), run="archive:export_session"),
    Verb(
        "prune",
        "show old runs, and delete them if you agree",
        (
            Flag("--older-than", value="AGE", help="only runs unchanged for this long: 30d, 12h"),
            _STATUS,
            Flag("--yes", help="delete without asking"),
        ),
        run="archive:prune_sessions",
    ),
)
_TASKS = (
    Verb("show", "show all tasks, and what each one waits for", (_JSON,), words=("FILE",), run="tasks:show_tasks"),
    Verb("next", "print the task that can start now", (_JSON,), words=("FILE",), run="tasks:next_task"),
    Verb(
        "convert",
        "print a feature list as tasks",
        (Flag("--to", value="FILE", help="write to a new file"),),
        words=("FILE",),
        run="tasks:convert_tasks",
    ),
    Verb("check", "list all problems of a task list", (_JSON,), words=("FILE",), run="tasks:check_tasks"),
)


_WORKFLOWS = (
    Verb("list", "list all workflows, without running their code", (_JSON,), run="workflows:list_workflows"),
    Verb(
        "show", "show one workflow: description, file, flags", (_JSON,), words=("NAME",), run="workflows:show_workflow"
    ),
    Verb(
        "check",
        "load all workflows and list every problem",
        (
            Flag("--runs", help="also list the runs of this folder that the present code cannot continue, and why"),
            TRUST,
        ),
        words=("[FILE...]",),
        run="workflows:check_workflows",
    ),
    Verb(
        "graph",
        "draw a workflow",
        (Flag("--mermaid", help="as Mermaid text"), Flag("--svg", help="as SVG"), TRUST),
        words=("NAME",),
        run="workflows:draw_workflow",
    ),
    Verb(
        "dev",
        "check a workflow and run it on a recording at each save",
        (Flag("--recording", value="FILE", help="what its agents do; default: NAME.jsonl next to the workflow"),),
        words=("NAME", PROMPT),
        run="workflow_dev:dev_workflow",
    ),
    Verb(
        "add",
        "add a workflow from a file, a folder or a git repository",
        (Flag("--trust", value="HASH", help="add the file with this hash without a question"),),
        words=("PATH|URL[@REF]", "[NAME]"),
        run="workflows_add:add_workflow",
    ),
    Verb("new", "write a starter file for a workflow", words=("NAME",), run="workflows:new_workflow"),
)
_ENTITIES = (
    Verb("list", "list all commands, skills and agents", (_KIND, _JSON), run="entities:list_entities"),
    Verb(
        "show",
        "show which file defines a name, which files it hides, and its text",
        (_KIND, _JSON),
        words=("NAME", "[ARGUMENTS...]"),
        run="entities:show_entity",
    ),
)
_MCP = (Verb("list", "list all configured servers, and where", (_JSON,), run="mcp:list_servers"),)

_CHAT = (_AGENT, *(flag for flag in TURN if flag.name in ("--model", "--record")), *CHAT)
GROUPS: dict[str, tuple[Verb, ...]] = {
    "Start": (
        Verb(
            "ralph",
            "work on a goal until it is done, tested and reviewed",
            words=(PROMPT,),
            stands_for=("run", "ralph"),
        ),
        Verb(
            "run",
            "run a workflow, or a file by its path; alone: list them",
            (*RUN, EVERY),
            words=("[WORKFLOW]", PROMPT),
            run="run:run_command",
            workflow=_workflow_to_run,
        ),
        Verb(
            "resume",
            "continue a run; without an ID the last one of this folder",
            HOW,
            words=("[ID]",),
            run="resume:resume_command",
            workflow=_workflow_of_session,
        ),
        Verb(
            "chat",
            "talk to an agent on the screen (also: atomic)",
            _CHAT,
            words=(PROMPT,),
            run="chat:run_chat",
        ),
        Verb("demo", "watch a run without an agent: real files, commits and tests", run="demo:run_demo"),
    ),
    "Watch and steer": (
        Verb(
            "status",
            "list the runs of this project, or show one run",
            (_JSON,),
            words=("[ID]",),
            run="sessions:show_status",
        ),
        Verb("ps", "list all runs, newest first: atomic sessions list", stands_for=("sessions", "list")),
        Verb(
            "logs",
            "print the events of a run, by default of the last one here",
            (Flag("-f", "--follow", help="also print new ones until the run ends"), LINES),
            words=("[ID]",),
            run="attach:logs_command",
        ),
        Verb("attach", "watch a run in another terminal", (LINES,), words=("[ID]",), run="attach:attach_command"),
        Verb(
            "answer",
            "answer a run's question and continue it",
            (*HOW, Flag("--no-resume", help="only save the answer")),
            words=("[ID]", "[QUESTION]", "ANSWER"),
            run="answer:answer_command",
            workflow=_workflow_of_session,
        ),
        Verb(
            "signal",
            "send a signal to a run, and continue it if it waits for that",
            (*HOW, Flag("--no-resume", help="only save the signal")),
            words=("ID", "NAME", "[JSON]"),
            run="send_signal:signal_command",
            workflow=_workflow_of_session,
        ),
        Verb(
            "wake",
            "continue all runs that are due: parked, answered or signalled",
            (
                Flag("--parallel", value="N", help="continue N runs at once (default 1)"),
                Flag("--dry-run", help="only show which runs are due"),
                LINES,
            ),
            run="wake:wake_command",
        ),
        Verb(
            "stop",
            "pause a run in another terminal",
            (Flag("--cancel", help="end it for good: it cannot be resumed"),),
            words=("[ID]",),
            run="stop:stop_command",
        ),
        Verb("sessions", "list, show, export and delete runs", verbs=_SESSIONS, default="list"),
        Verb(
            "diff",
            "show what a run, or one of its tasks, has changed",
            (_JSON,),
            words=("[ID]", "[TASK]"),
            run="diff:diff_command",
        ),
        Verb(
            "accept",
            "merge a run's branch into your branch",
            (
                Flag("--squash", help="as one commit, with the tasks in its message"),
                Flag(
                    "--fix",
                    help="after a move of your branch or an undo: check the merge, and let a fixer resolve what fails",
                ),
                Flag("--unchecked", help="merge without a check although a task was undone"),
            ),
            words=("[ID]",),
            run="accept:accept_command",
        ),
        Verb("undo", "take a task back out of a run's branch", words=("[ID]", "TASK"), run="undo:undo_command"),
        Verb(
            "discard",
            "remove a run's branch; atomic salvage can still restore it",
            (Flag("--yes", help="remove it without asking"),),
            words=("ID",),
            run="discard:discard_command",
        ),
        Verb(
            "salvage",
            "restore parked work of a run, or your own files",
            (
                Flag("--to", value="DIR", help="write the files of a TASK to this new folder"),
                Flag("--force", help="also replace files that have changed since the run; a copy is kept"),
                _JSON,
            ),
            words=("ID", "[TASK|PATH...]"),
            run="salvage:salvage_command",
        ),
    ),
    "Build workflows": (
        Verb("workflows", "list, check, draw and create workflows", verbs=_WORKFLOWS, default="list"),
        Verb(
            "trust",
            "show the code that this project can run, and approve it",
            (
                Flag("--show", help="only show the code, the changes and the hash"),
                _JSON,
                Flag("--revoke", help="withdraw the approval"),
            ),
            words=("[HASH]",),
            run="trust:run_trust",
        ),
        Verb("tasks", "show, check and convert task lists", verbs=_TASKS, default="show"),
        Verb(
            "replay",
            "replay a recording of agents",
            (
                Flag("--speed", value="N", help="how many times as fast, or max (default 1)"),
                Flag("--no-changes", help="do not change files"),
                _JSON,
            ),
            words=("FILE",),
            run="replay:run_replay",
        ),
        Verb("entities", "list commands, skills and agents of every tool", verbs=_ENTITIES, default="list"),
    ),
    "Set up": (
        Verb("init", "create .atomic/ with a configuration and an example", run="init:init_project"),
        Verb(
            "schema",
            "print the JSON Schema of a file or of the events",
            words=("[SCHEMA]",),
            run="schema:print_schema",
        ),
        Verb("login", "start an agent's own login", words=("AGENT",), run="login:login_command"),
        Verb("doctor", "show which agents work here, and what the others need", (_JSON,), run="doctor:run_doctor"),
        Verb("models", "list the models of an agent", (_AGENT, _JSON), run="models:run_models"),
        Verb("config", "show all settings, and where each one is set", (_JSON,), run="config:show_config"),
        Verb("mcp", "list the MCP servers of every tool", verbs=_MCP, default="list"),
        Verb(
            "completion",
            "print or install the completion of bash, zsh or fish",
            (
                Flag("--install", help="write it to where the shell looks for it, and show what changes"),
                Flag("--dry-run", help="with --install: only show what would change"),
            ),
            words=("[SHELL]",),
            run="completion:print_script",
        ),
        Verb(
            "help",
            "show the help of a command, such as run or sessions list",
            words=("[VERB...]",),
            run="help:show_help",
        ),
        Verb("version", "print the version of Atomic", run="help:show_version"),
    ),
}
VERBS = {verb.name: verb for group in GROUPS.values() for verb in group}
