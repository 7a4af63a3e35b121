"""Sample tasks, agents, runs, questions and conversations for screen states."""

from __future__ import annotations

import msgspec

from atomic.chat.protocol import (
    Activity,
    ChatEvent,
    ChatNotice,
    CommandInfo,
    Level,
    PickKind,
    PickOpened,
    PickRow,
    RunEnded,
    RunKind,
    RunStarted,
    ShellOutput,
    StatusChanged,
)
from atomic.providers.events import (
    AgentEvent,
    EndReason,
    PlanChanged,
    PlanItem,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Usage,
)
from atomic.questions import Option, Question
from atomic.tasks import Task, TaskStatus
from atomic.tui.state.model import AgentEntry, BlockKind, NodeEntry, QuestionEntry, Queued, RunEntry, RunState, Screen
from atomic.tui.state.store import Store

NOW = 10_000.0

READY = StatusChanged(
    session="a1b2c3d4-5e6f-7081",
    provider="claude",
    model="opus",
    project="~/proj",
    branch="main",
    context_used=68_000,
    context_limit=200_000,
    usage=Usage(input=61_000, output=7_000, cost=0.42),
    ready=True,
)
NO_AGENT = StatusChanged(
    project="~/new",
    problem="No agent can be used here: claude: run `claude` once and log in, or set ANTHROPIC_API_KEY "
    "(atomic doctor says what is missing for each; atomic demo shows a run without one)",
)


COMMANDS = (
    CommandInfo("help", "Commands by category, or one in detail", "builtin", ("h", "?"), "[command]"),
    CommandInfo("clear", "New conversation, new session", "builtin", ("cls",)),
    CommandInfo("compact", "Summarise the context, keep the transcript", "builtin", (), "[focus]"),
    CommandInfo(
        "model", "Picker, or switch at once", "builtin", ("m",), "select | refresh | list [provider] | <model>"
    ),
    CommandInfo("agent", "Switch provider", "builtin", (), "[claude | opencode | copilot | acp:NAME]"),
    CommandInfo("theme", "Set, or pick with preview", "builtin", (), "[name]"),
    CommandInfo("mcp", "Servers of all four config dialects", "builtin", (), "[enable | disable <server>]"),
    CommandInfo("sessions", "List runs and conversations; open one", "builtin", (), "[id]"),
    CommandInfo("exit", "Leave; a running workflow is paused", "builtin", ("quit", "q")),
    CommandInfo("ralph", "Plan, implement, verify, review and fix", "workflow", ("loop",), '"<prompt-or-spec-path>"'),
    CommandInfo("release", "Build, tag and publish", "workflow", (), "<version>"),
    CommandInfo("research-codebase", "Document the codebase", "skill", (), "<question or topic>"),
    CommandInfo("翻译", "把文档翻译成中文", "skill"),
    CommandInfo("reviewer", "Reads a diff and says what is wrong", "agent", (), "<diff or branch>"),
)


def chat(**changes: object) -> Screen:
    """Return a conversation that is ready."""
    return Screen(status=READY, commands=COMMANDS, **changes)  # type: ignore[arg-type]


def turn(state: RunState = RunState.ACTIVE, *, seconds: float = 12, quiet: float = 1) -> RunEntry:
    """Return an active turn. Its agent has been quiet for `quiet` seconds."""
    return RunEntry("t1", RunKind.TURN, state=state, started=NOW - seconds, heard=NOW - quiet)


def four_tasks() -> tuple[Task, ...]:
    """Return one task of each important status."""
    return (
        Task("1", "Schema of users and tokens", status=TaskStatus.COMPLETED),
        Task("2", "Login endpoint", status=TaskStatus.COMPLETED),
        Task("3", "Refresh endpoint that rotates the token", status=TaskStatus.IN_PROGRESS),
        Task("4", "Docs", blocked_by=["3"]),
    )


def all_statuses() -> tuple[Task, ...]:
    """Return a task of each status."""
    return tuple(
        Task(
            str(at),
            f"A task that is {status.value.replace('_', ' ')}",
            status=status,
            blocked_by=["1"] if at > 4 else [],
        )
        for at, status in enumerate(TaskStatus, 1)
    )


def many_tasks(count: int = 200, done: int = 87) -> tuple[Task, ...]:
    """Return more tasks than fit on a screen."""
    statuses = [TaskStatus.COMPLETED] * done + [TaskStatus.IN_PROGRESS] * 4
    return tuple(
        Task(
            str(at),
            f"Move module {at} to the new storage layer",
            status=statuses[at - 1] if at <= len(statuses) else TaskStatus.PENDING,
            blocked_by=[str(at - 4), str(at - 3)] if at > done + 4 else [],
        )
        for at in range(1, count + 1)
    )


def plan() -> tuple[PlanItem, ...]:
    """Return the plan of an agent."""
    return (
        PlanItem("Read the failing test", "completed"),
        PlanItem("Find where the token is cut", "in_progress"),
        PlanItem("Repair it and run the tests", "pending"),
        PlanItem("Ask for a bigger machine", "cancelled"),
    )


def agents(count: int, run: str = "w1") -> dict[str, AgentEntry]:
    """Return working agents, each with its own time and activity."""
    doings = ("Bash pytest -q tests/auth", "Read src/app.py", "Edit src/auth.py", "Grep refresh_token", "WebFetch docs")
    return {
        f"{run}:{at}": AgentEntry(
            f"{run}:{at}", f"worker#{at}", run, task=f"task {at}", doing=doings[at % len(doings)],
            started=NOW - 7 * at * at, tools=at,
        )
        for at in range(1, count + 1)
    }  # fmt: skip


def agent_tree() -> dict[str, AgentEntry]:
    """Return two agents whose sub-agents started alternately."""
    entries = [
        AgentEntry("w1:a", "planner", "w1", status="done", started=NOW - 140, ended=NOW - 119, task="plan"),
        AgentEntry("w1:b", "worker#3", "w1", doing="Task explore", started=NOW - 95),
        AgentEntry("w1:c", "worker#4", "w1", doing="Edit src/tokens.py", started=NOW - 61),
        AgentEntry("w1:d", "explorer", "w1", doing="Grep rotate", started=NOW - 30, depth=1, parent="w1:b"),
        AgentEntry("w1:e", "tester", "w1", doing="Bash pytest", started=NOW - 21, depth=1, parent="w1:c"),
        AgentEntry("w1:f", "reader", "w1", status="failed", started=NOW - 20, ended=NOW - 11, depth=2, parent="w1:d",
                   task="read the RFC"),
        AgentEntry("w1:g", "reviewer", "w1", status="waiting", started=NOW - 8, task="asks a question"),
    ]  # fmt: skip
    return {entry.id: entry for entry in entries}


DRAWING = (
    "             ● start",
    "             ▼",
    "        ┌─ agent ─┐",
    "        │ plan    │",
    "        └────┬────┘",
    "             ▼",
    "╭─ loop rounds ────────────╮",
    "│            ▼◄─────────╮  │",
    "│       ┌─ agent ─┐     │  │",
    "│       │ work    │     │  │",
    "│       └────┬────┘     │  │",
    "│            ▼          │  │",
    "│       ┌─ node ──┐     │  │",
    "│       │ gate    │     │  │",
    "│       └────┬────┘     │  │",
    "│            ▼          │  │",
    "│       ┌─ agent ─┐     │  │",
    "│       │ review  │     │  │",
    "│       └────┬────┘     │  │",
    "│            ├─ again ──╯  │",
    "╰────────────┼─────────────╯",
    "             ▼",
    "             ◉ end",
)
POSITIONS = {"plan": (3, 10, 4), "work": (9, 10, 4), "gate": (13, 10, 4), "review": (17, 10, 6)}


def workflow(state: RunState = RunState.ACTIVE, *, drawing: bool = True, **changes: object) -> RunEntry:
    """Return a run of Ralph in its third round."""
    nodes = {
        "plan": NodeEntry("plan", "completed", 1),
        "work": NodeEntry("work", "active", 3),
        "gate": NodeEntry("gate", "completed", 2),
        "review": NodeEntry("review", "", 0),
    }
    run = RunEntry(
        "w1", RunKind.WORKFLOW, "ralph", state, NOW - 125, heard=NOW - 2, session="9f8e7d6c-1111", nodes=nodes
    )
    if drawing:
        run.drawing = DRAWING
        run.positions = dict(POSITIONS)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def ralph(**changes: object) -> Screen:
    """Return a screen with a workflow, its tasks and its agents."""
    values: dict[str, object] = {"runs": {"w1": workflow()}, "tasks": four_tasks(), "agents": agent_tree(), **changes}
    return chat(**values)


def three_questions() -> dict[str, QuestionEntry]:
    """Return one question of each kind, each from another agent."""
    entries = [
        QuestionEntry("q1", "w1", branch_question(), "worker#4"),
        QuestionEntry("q2", "w1", tests_question(), "reviewer"),
        QuestionEntry("q3", "w1", Question("What should the release be called?", default="v2.0"), "publish"),
    ]
    return {entry.id: entry for entry in entries}


def branch_question() -> Question:
    """Return a question with one answer from a list."""
    return Question(
        "Which branch should the pull request target?",
        header="Branch",
        options=(
            Option("main", "What is released; protected, needs a review"),
            Option("develop", "What comes next"),
            Option("release/2.x", "Only repairs are merged there"),
        ),
        default="develop",
    )


def tests_question() -> Question:
    """Return a question with several answers from a list."""
    return Question(
        "Which suites are to run before each merge?",
        header="Tests",
        options=(Option("unit"), Option("end to end", "Six minutes, needs a browser"), Option("benchmarks")),
        default="unit",
        multi_select=True,
    )


def long_question() -> Question:
    """Return a question too long for a small screen, with wide characters."""
    return Question(
        "The migration would rewrite 214 files and change the public names of three modules. "
        "迁移会改变三个模块的公共名称。 It cannot be taken back without a restore.\n\nHow do you want to go on?",
        options=tuple(
            Option(f"Option {at}: {name}", "A reason that is long enough to take more than one line on a narrow screen")
            for at, name in enumerate(("all at once", "one module a day", "behind a flag", "后来再说", "not at all"), 1)
        ),
    )


def queued(*texts: str) -> list[Queued]:
    """Return texts that were sent while the agent was busy."""
    return [Queued(at, text) for at, text in enumerate(texts)]


def models() -> PickOpened:
    """Return a picker with the models of two providers."""
    rows = (
        PickRow("claude/opus", "opus", "the strongest · 200k · $15/$75", "claude", current=True),
        PickRow("claude/sonnet", "sonnet", "quicker · 200k · $3/$15", "claude"),
        PickRow("claude/haiku", "haiku", "quickest · 200k · $0.80/$4", "claude"),
        PickRow("opencode/gpt-5.2", "openai/gpt-5.2", "400k", "opencode"),
        PickRow("opencode/long", "a-provider/with-a-name-of-a-model-that-is-quite-long-2026-11-01", "32k", "opencode"),
        PickRow("opencode/qwen", "qwen/通义千问", "128k · 本地", "opencode"),
    )
    return PickOpened(request="p", kind=PickKind.MODEL, title="Model", rows=rows)


def themes() -> PickOpened:
    """Return a picker with the four themes."""
    details = {"dark": "for a dark terminal", "light": "for a light one", "ansi": "the terminal's own colours",
               "contrast": "as strong as can be"}  # fmt: skip
    rows = tuple(PickRow(name, name, detail, current=name == "dark") for name, detail in details.items())
    return PickOpened(request="p", kind=PickKind.THEME, title="Theme", rows=rows)


def sessions(count: int = 60) -> PickOpened:
    """Return a picker with more sessions than fit on a screen."""
    words = ("paused", "completed", "failed", "chat", "running")
    rows = tuple(
        PickRow(
            f"id{at}",
            f"{0xA1B2C300 + at * 7919:08x}  {words[at % 5]:<9}",
            f"2026-11-{15 - at // 6:02} {23 - at % 24:02}:04  ralph  Build the refresh endpoint, part {at}",
            "this project" if at < 20 else "other projects",
            current=at == 3,
        )
        for at in range(count)
    )
    return PickOpened(request="p", kind=PickKind.SESSION, title="Runs and conversations", rows=rows)


def servers() -> PickOpened:
    """Return a picker with MCP servers, on and off."""
    rows = (
        PickRow("github", "github", "on · 31 tools · .mcp.json", "claude", current=True),
        PickRow("postgres", "postgres", "off · ~/.claude.json", "claude"),
        PickRow("browser", "browser", "failed: spawn npx ENOENT · opencode.json", "opencode"),
    )
    return PickOpened(request="p", kind=PickKind.MCP, title="MCP servers", rows=rows)


def providers() -> PickOpened:
    """Return a picker with agents, one of them not installed."""
    rows = (
        PickRow("claude", "claude", "Claude Code 2.1.197 · signed in", current=True),
        PickRow("opencode", "opencode", "1.18.33"),
        PickRow("copilot", "copilot", "not installed: npm install -g @github/copilot"),
    )
    return PickOpened(request="p", kind=PickKind.PROVIDER, title="Agent", rows=rows)


KEYS = (
    ("Esc", "Close what is open, else stop the turn or pause the workflow", "Anywhere"),
    ("Ctrl+C", "The same; then clear the input; then leave (twice within a second: at once)", "Anywhere"),
    ("Ctrl+P", "All commands", "Anywhere"),
    ("Ctrl+T", "Tasks", "Anywhere"),
    ("F6", "Questions that wait", "Anywhere"),
    ("Enter", "Send; while the agent is busy: queue", "Prompt"),
    ("Ctrl+J, Alt+Enter, Shift+Enter", "A new line (also \\ and Enter)", "Prompt"),
    ("Ctrl+R", "Search what was sent before", "Prompt"),
    ("j, k", "The next block, the one before", "Transcript"),
    ("y", "Copy the block", "Transcript"),
)

# Conversations, built from the events of an engine.
ANSWER = """\
I read **all three** modules. The token is cut in `parse_header`, because the header may be *longer* than 255 bytes.

## What is wrong

1. The length is read as one byte.
2. The rest is kept for the next request:
   - which then fails,
   - or answers with another user's data.

| module | lines | covered | note |
|---|---:|:---:|---|
| auth/header.py | 214 | 91 % | the length |
| auth/令牌.py | 88 | 100 % | 没有问题 |
| 日志 | 1,204 | 12 % | ログは後で |

```python
def parse_header(data: bytes) -> Header:
    length = int.from_bytes(data[:2], "big")  # 以前は 1 バイト
    return Header(data[2 : 2 + length].decode("utf-8"))
```

> Do not send it before the proxy is updated.

See [the RFC](https://example.org/rfc) and 漢字かな交じり文、全角文字は二桁です。
"""


def screen_after(*events: ChatEvent, screen: Screen | None = None, at: float = NOW - 20) -> Screen:
    """Return the screen state after these events."""
    store = Store(screen or chat())
    for event in events:
        store.apply(event, getattr(event, "time", 0) or at)
    return store.screen


def run_started(prompt: str = "Why do long tokens fail?", run: str = "t1", kind: RunKind = RunKind.TURN) -> RunStarted:
    """Return the start of the run of a prompt."""
    return RunStarted(run=run, kind=kind, prompt=prompt, time=NOW - 40)


def activity(event: AgentEvent, run: str = "t1", ago: float = 20) -> Activity:
    """Return an event of the agent."""
    return Activity(run=run, event=event, time=NOW - ago)


def tool_call(id: str, name: str, output: str = "", error: str | None = None, **input: object) -> list[ChatEvent]:
    """Return the start and the end of a tool call."""
    return [activity(ToolStarted(id, name, dict(input)), ago=31), activity(ToolEnded(id, output, error), ago=29.8)]


def answered() -> Screen:
    """Return a finished turn with thinking, tools and an answer."""
    return screen_after(
        run_started(),
        activity(ThinkingDelta("The header is read in two places. I should look at both of them first."), ago=35),
        *tool_call("1", "Read", "1\timport struct\n2\t", file_path="src/auth/header.py"),
        *tool_call("2", "Bash", "41 passed in 7.90s\n", command="pytest -q tests/auth"),
        *tool_call("3", "Edit", "ok", file_path="src/auth/header.py", old_string="data[0]", new_string="data[:2]"),
        *tool_call("4", "Bash", "", "exit code 1: no such file", command="cat missing.txt"),
        activity(TextDelta(ANSWER), ago=5),
        activity(TurnEnded(EndReason.DONE, ANSWER), ago=1),
        RunEnded(run="t1", status="done", time=NOW - 1),
    )


def streaming() -> Screen:
    """Return an unfinished answer with a running tool."""
    return screen_after(
        run_started("Explain the retry loop, and run the tests meanwhile"),
        *tool_call("1", "Grep", "src/retry.py:12\nsrc/retry.py:40", pattern="retry"),
        activity(
            TextDelta(
                "The loop waits **twice as long** after each failure:\n\n```python\nfor attempt in range(5):\n    aw"
            ),
            ago=3,
        ),
        activity(ToolStarted("2", "Bash", {"command": "pytest -q"}), ago=3),
    )


MARKDOWN = """\
# The release

What is in it, with a footnote[^1] and <b>some HTML</b>, ~~an error~~ and a [very long address](https://example.org/a/path/that/does/not/fit/into/any/line/of/a/narrow/screen?with=a&query=too).

## Lists

- first
  1. inner, with `code` in it and enough words to be broken at the end of the line of a narrow screen
     - deeper
       - deepest
  2. inner again
- [x] done
- [ ] open

| option | type | default | what it does, in more words than the screen is wide | since |
|---|---|---|---|---|
| `--agent` | name | the first that works | which agent answers; an unknown one is an error that says so | 1.0 |
| `--theme` | dark, light, ansi, contrast | by the background | 色のテーマ | 2.0 |

```sh
curl --fail --silent --show-error --location --output /tmp/archive.tar.gz https://example.org/releases/2.0/archive.tar.gz
```

> A quotation
>
> > in a quotation

---

### The end

<details><summary>More</summary>hidden text</details>

[^1]: It is explained here.
"""


def markdown() -> Screen:
    """Return an answer with every Markdown element."""
    return screen_after(
        run_started("What is new?"), activity(TextDelta(MARKDOWN)), RunEnded(run="t1", status="done", time=NOW)
    )


def unfolded() -> Screen:
    """Return a turn with unfolded thinking and tools, and a folded sub-agent."""
    diff = {
        "file_path": "src/auth/header.py",
        "old_string": "def parse(data):\n    length = data[0]\n    return data[1:length]",
        "new_string": 'def parse(data):\n    length = int.from_bytes(data[:2], "big")\n    return data[2 : 2 + length]',
    }
    screen = screen_after(
        run_started("Repair it"),
        activity(ThinkingDelta("The header is read in two places.\nI look at both of them."), ago=35),
        *tool_call("1", "Edit", "ok", **diff),
        *tool_call("2", "Bash", "F.\n1 failed, 1 passed in 0.12s", "exit code 1", command="pytest -q tests/auth"),
        activity(SubagentStarted("a", "explorer", "who else reads it"), ago=28),
        activity(ToolStarted("a1", "Grep", {"pattern": "parse("}, agent="a"), ago=27),
        activity(ToolEnded("a1", "src/app.py:12", agent="a"), ago=26),
        activity(SubagentEnded("a", "Only `src/app.py`."), ago=9),
        activity(TextDelta("It was the length."), ago=5),
        RunEnded(run="t1", status="done", time=NOW - 1),
    )
    for block in screen.blocks:
        block.folded = block.kind not in (BlockKind.TOOL, BlockKind.THINKING) and block.folded
    return screen


def add_answer(store: Store) -> None:
    """Add another turn, as while the user reads further up."""
    store.apply(run_started("And then?", "t2"), NOW - 2)
    for at in range(11):
        store.apply(activity(TextDelta(f"Paragraph {at}.\n\n"), "t2", 1), NOW - 1)


def errors() -> Screen:
    """Return notices, a warning, an error and a failed turn."""
    return screen_after(
        run_started("Deploy it"),
        ChatNotice(text="The model was switched to opus."),
        ChatNotice(text="The key in .env is readable by all users of this machine.", level=Level.WARNING),
        activity(TextDelta("I begin with the build.")),
        RunEnded(run="t1", status="failed", message="API error 529: overloaded. Try again in a few minutes.", time=NOW),
        ChatNotice(text='Unknown command: "/deploi" (did you mean "/deploy"?)', level=Level.ERROR),
    )


def long_line() -> Screen:
    """Return lines wider than any screen."""
    path = "/" + "/".join(f"a-folder-with-a-long-name-{at}" for at in range(12))
    return screen_after(
        run_started("x" * 300),
        *tool_call("1", "Bash", "y" * 300 + "\n" + "表" * 150, command="cat " + path),
        activity(TextDelta(f"The file is `{path}`.\n\n```\n{'z' * 300}\n```\n\n" + "漢" * 150)),
        RunEnded(run="t1", status="done", time=NOW),
    )


def shell() -> Screen:
    """Return a shell command of the user."""
    return screen_after(
        RunStarted(
            run="s1", kind=RunKind.SHELL, prompt="!git status --short", title="git status --short", time=NOW - 2
        ),
        ShellOutput(run="s1", text=" M src/auth.py\n?? notes.txt\n"),
        RunEnded(run="s1", status="done", time=NOW),
    )


def hostile() -> Screen:
    """Return texts that try to control the terminal, in every field."""
    bad = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe \u200bhidden [bold red]markup[/] \x9b31m"
    screen = screen_after(
        run_started(bad),
        *tool_call("1", bad, bad, command=bad),
        activity(TextDelta(bad)),
        activity(PlanChanged((PlanItem(bad),))),
    )
    screen.tasks = (Task("1" + bad, bad, status=TaskStatus.IN_PROGRESS), Task("2", bad, blocked_by=[bad]))
    screen.questions = {"q": QuestionEntry("q", "t1", Question(bad, options=(Option(bad, bad),)), bad)}
    screen.status = StatusChanged(provider=bad, model=bad, project=bad, branch=bad, session=bad, ready=True)
    return screen


def called_agents() -> Screen:
    """Return a transcript with the sub-agents that the user called."""
    events: list[ChatEvent] = [run_started("@reviewer the diff @tester the suite", "c1", RunKind.AGENTS)]
    for id, name, task in (("a", "reviewer", "the diff"), ("b", "tester", "the suite")):
        events.append(activity(SubagentStarted(id, name, task), "c1", 30))
        events.append(activity(ToolStarted(f"{id}1", "Bash", {"command": f"git diff # {name}"}, agent=id), "c1", 28))
        events.append(activity(ToolEnded(f"{id}1", "ok", agent=id), "c1", 20))
    events.append(activity(SubagentEnded("a", "Two things are wrong."), "c1", 4))
    return screen_after(*events)


def ended_workflow(status: str, message: str, resume: str = "") -> Screen:
    """Return a finished workflow."""
    screen = ralph()
    run = screen.runs["w1"]
    screen.agents = {}
    if status == "completed":
        screen.tasks = tuple(msgspec.structs.replace(task, status=TaskStatus.COMPLETED) for task in screen.tasks)
        run.nodes = {id: NodeEntry(id, "completed", 1) for id in run.nodes}
    run.state = RunState.ENDED
    run.ended = NOW - 3
    run.status = status
    run.message = message
    run.resume = resume
    head = screen_after(
        RunStarted(run="w1", kind=RunKind.WORKFLOW, title="ralph", prompt='/ralph "Build the login"', time=NOW - 125,
                   session="9f8e7d6c-1111"),
        RunEnded(run="w1", status=status, message=message, resume=resume, time=NOW - 3),
    )  # fmt: skip
    screen.blocks = head.blocks
    return screen
