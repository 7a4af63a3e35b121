"""Compare what people and programs rely on with text files, which change only on purpose.

To accept a change, rewrite the files, read `git diff tests/golden` and commit it:

    ATOMIC_WRITE_GOLDEN=1 .venv/bin/python -m pytest tests/golden
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec
import pytest

from atomic.chat.protocol import ChatEvent, Intent

# The journal's rows, session.json and the chat protocol have no public name. When they move, change these imports only.
from atomic.graph.engine import journal as journal_rows
from atomic.providers import AgentEvent
from atomic.sessions import SessionRecord
from atomic.workflows import WorkflowEvent
from tests.golden.public_names import describe_function, describe_package
from tests.golden.shapes import INDENT, describe_fields, describe_tagged_values, describe_union, describe_values
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, finding, reviewing, writing
from tests.support.entity_files import agent, servers
from tests.support.user import User
from tests.support.user_workflows import call, end, recording, text, workflow

GOLDEN = Path(__file__).parent
WRITE = "ATOMIC_WRITE_GOLDEN"
PUBLIC_PACKAGES = ("commands", "entities", "providers", "questions", "tasks", "testing", "workflows")
LIMIT = 300  # seconds, to end a hang

# -- the golden files -------------------------------------------------------------------------------------------------


def check(files: Mapping[str, Iterable[str]], folder: Path = GOLDEN) -> None:
    """Compare lines with golden files, or write the files if `ATOMIC_WRITE_GOLDEN` is set."""
    diffs: list[str] = []
    for name, lines in files.items():
        path = folder / name
        found = "\n".join(lines).rstrip() + "\n"
        if os.environ.get(WRITE):
            path.parent.mkdir(exist_ok=True)
            path.write_text(found, encoding="utf-8")
        kept = path.read_text(encoding="utf-8") if path.exists() else ""
        sides = (kept.splitlines(keepends=True), found.splitlines(keepends=True))
        diffs += difflib.unified_diff(*sides, f"tests/golden/{name}", "what Atomic does now")
    if diffs:
        command = f"{WRITE}=1 .venv/bin/python -m pytest tests/golden"
        remedy = f"If this change is on purpose, accept it and commit the files: {command}"
        pytest.fail(f"{''.join(diffs)}\n{remedy}", pytrace=False)


def section(title: str, lines: Iterable[str]) -> list[str]:
    return [f"# {title}", "", *lines, ""]


def test_a_difference_is_shown_with_the_command_that_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WRITE, "1")
    check({"names.txt": ["one", "two"]}, tmp_path)
    monkeypatch.delenv(WRITE)
    check({"names.txt": ["one", "two"]}, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=rf"-two\n\+three\n(.|\n)*{WRITE}=1 .*pytest tests/golden"):
        check({"names.txt": ["one", "three"]}, tmp_path)


# -- the command ------------------------------------------------------------------------------------------------------


class Result(msgspec.Struct, frozen=True):
    """How a command ended and what it wrote."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def atomic(user: User, *lines: Sequence[str], input: str = "") -> list[Result]:
    """Run `atomic` with each of these command lines, one after the other."""
    orders = [{"words": words, "cwd": str(user.project), "input": input} for words in lines]
    done = subprocess.run(
        (sys.executable, GOLDEN / "fork_server.py", user.home.parent),
        input=msgspec.json.encode(orders), env=user.env, capture_output=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=list[Result])


@pytest.fixture
def user(tmp_path: Path) -> User:
    made = User(tmp_path)
    made.env["COLUMNS"] = "100"
    return made


def test_the_help_of_every_verb(user: User) -> None:
    texts: dict[tuple[str, ...], str] = {}
    asked: list[tuple[str, ...]] = [(), ("run", "ralph")]
    while asked:
        found = dict(zip(asked, helps(user, asked), strict=True))
        texts |= found
        asked = [verb for path, help in found.items() for verb in verbs_in(help, path) if verb not in texts]
    files = {f"help/{'-'.join(path) or 'atomic'}.txt": help.splitlines() for path, help in texts.items()}
    check(files)
    kept = {f"help/{path.name}" for path in (GOLDEN / "help").iterdir()}
    assert kept == files.keys(), "a verb is gone: if that is on purpose, delete its golden file"


def helps(user: User, paths: Sequence[tuple[str, ...]]) -> list[str]:
    results = atomic(user, *((*path, "--help") for path in paths))
    assert [(result.exit_code, result.stderr) for result in results] == [(0, "")] * len(paths)
    return [result.stdout for result in results]


def verbs_in(help: str, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the verbs that the help of a verb lists below it."""
    start = " ".join(("  atomic", *path, ""))
    return [(*path, name) for name in re.findall(rf"^{start}([a-z][a-z-]*)\b", help, re.MULTILINE)]


# -- exit codes -------------------------------------------------------------------------------------------------------

ENDINGS = """
import signal, sys

class NoPlanError(AtomicError):
    code = "no_plan"

async def end(ctx):
    how, _, word = ctx.state.prompt.partition(" ")
    match how:
        case "fail":
            raise NoPlanError("no plan") if word == "no_plan" else ValueError("failed")
        case "pause":
            raise Suspend("paused", code=word)
        case "block":
            raise Suspend("blocked", status=RunStatus.BLOCKED, code=word)
        case "ask":
            await ctx.ask("Which?")
        case "wait":
            await ctx.wait_for(word)
        case "sleep":
            await ctx.sleep(minutes=int(word))
        case "signal":
            os.kill(os.getpid(), getattr(signal, word))
            await asyncio.Event().wait()
        case "command":
            done = await ctx.exec(sys.executable, "-m", "atomic", *word.split(), ctx.state.execution_id)
            print("exit code", done.exit_code)

workflow = graph(S).node("end", end).compile()
"""
ENDS = (
    "complete",
    "fail",
    "fail no_plan",
    "ask",
    "wait approved",
    "sleep 90",
    "pause branch_changed",
    "pause max_cost",
    "pause max_tokens",
    "pause max_time",
    "pause max_iterations",
    "pause provider_limit",
    "block nothing_runnable",
    "block same_blocker",
    "block review_rounds",
    "block not_approved",
    "block stuck",
    "block check_red",
    "block moving_tree",
    "signal SIGINT",
    "signal SIGTERM",
    "signal SIGHUP",
    "command stop --cancel",
)
TURN_ENDS = ("done", "error", "refused", "max_turns", "limit", "interrupted", "a question without a terminal")
CYCLE = [{"id": "1", "title": "One", "blocked_by": ["2"]}, {"id": "2", "title": "Two", "blocked_by": ["1"]}]
COMMANDS = {
    "the version": ("--version",),
    "no terminal and nothing to do": (),
    "an unknown verb": ("frobnicate",),
    "an unknown flag": ("sessions", "list", "--frobnicate"),
    "a missing word": ("discard",),
    "a word too many": ("doctor", "now"),
    "an unknown workflow": ("run", "frobnicate"),
    "a workflow that does not load": ("run", "broken"),
    "not an id": ("resume", "frobnicate"),
    "an unknown id": ("resume", "00000000-0000-4000-8000-000000000000"),
    "an unknown agent": ("-p", "--agent", "frobnicate", "hi"),
    "an agent whose program is missing": ("-p", "--agent", "opencode", "hi"),
    "a missing recording": ("-p", "--agent", "replay:missing.jsonl", "hi"),
    "an unknown role": ("run", "ralph", "--model", "frobnicate=x", "goal"),
    "a missing task file": ("run", "ralph", "--tasks", "missing.json"),
    "a task file with a cycle": ("run", "ralph", "--tasks", "cycle.json"),
    "tasks check: problems": ("tasks", "check", "cycle.json"),
    "tasks next: nothing can start": ("tasks", "next", "cycle.json"),
    "workflows check: problems": ("workflows", "check"),
    "doctor: no agent can be used": ("doctor",),
    "completion of an unknown shell": ("completion", "frobnicate"),
}
UNTRUSTED_COMMANDS = {
    "a workflow of the project": ("run", "strange"),
    "a check of the project": ("run", "ralph", "goal"),
    "workflows check": ("workflows", "check"),
    "workflows graph": ("workflows", "graph", "strange"),
    "trust: no terminal": ("trust",),
    "trust: another hash": ("trust", "0" * 64),
    "trust: only show": ("trust", "--show"),
}


def test_exit_codes(user: User) -> None:
    workflow(user, "endings", ENDINGS)
    runs = [("run", "endings", "--json", "--park", how) for how in (*ENDS, "command resume")]
    results = atomic(user, *runs, *turn_commands(user))
    ended = results[: len(ENDS)]
    owned = results[len(ENDS)]
    turns = results[len(runs) :]
    completed, *others = other_results(user, completed=ended[0].objects[0]["run"])
    ends = [row(how, *status_of(result)) for how, result in zip(ENDS, ended, strict=True)]
    resumes = [
        row("a completed run", completed.exit_code),
        row("a run that another process owns", owned.stderr.split("exit code ")[-1].strip()),
    ]
    lines = [
        *section("How a run ends: what its node does, status, reason, exit code", ends),
        *section("How a run is resumed: exit code", resumes),
        *section("How `atomic -p` ends: reason of the turn, exit code", codes(TURN_ENDS, turns)),
        *section("How other commands end: exit code", codes(COMMANDS, others)),
        *section("In a project that is not trusted: exit code", codes(UNTRUSTED_COMMANDS, untrusted_results(user))),
    ]
    check({"exit_codes.txt": lines})


def row(*words: object) -> str:
    first, *others = map(str, words)
    return f"{first:<45} {' '.join(f'{word:<16}' for word in others)}".rstrip()


def status_of(result: Result) -> tuple[str, str, int]:
    last = result.objects[-1]
    assert last["exit_code"] == result.exit_code
    return last["status"], last["reason"], result.exit_code


def codes(names: Iterable[str], results: Iterable[Result]) -> list[str]:
    return [row(name, result.exit_code) for name, result in zip(names, results, strict=True)]


def turn_commands(user: User) -> list[tuple[str, ...]]:
    """Record turns that end in each way, and return the commands that play them."""
    *reasons, asking = TURN_ENDS
    question = {"type": "question_asked", "questions": [{"text": "Which?"}]}
    turns = [call(end("Said.", reason=reason), match=reason) for reason in reasons]
    player = recording(user, *turns, call(question, end("Said."), match=asking))
    return [("-p", "-a", player, name) for name in TURN_ENDS]


def other_results(user: User, completed: str) -> list[Result]:
    """Resume a completed run, then run the other commands where no agent is installed."""
    workflow(user, "broken", "raise ValueError('broken')")
    (user.project / "cycle.json").write_text(json.dumps(CYCLE))
    user.has_no_agents()
    user.sets(f'agent = "{recording(user)}"')
    return atomic(user, ("resume", completed), *COMMANDS.values())


def untrusted_results(user: User) -> list[Result]:
    strange = user.project / ".atomic" / "workflows" / "strange.py"
    strange.parent.mkdir(parents=True)
    strange.write_text("from atomic.workflows import *\nworkflow = graph(State).wait('Go on?').compile()\n")
    user.project_sets('[workflows.ralph]\nverify = ["true"]\n')
    return atomic(user, *UNTRUSTED_COMMANDS.values())


def test_every_reason_that_the_documentation_names_has_an_exit_code() -> None:
    page = (GOLDEN.parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = page.partition("| exit code | status | reason |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`([a-z_]+)`", rows))
    assert documented
    assert documented <= set((GOLDEN / "exit_codes.txt").read_text(encoding="utf-8").split())


# -- events -----------------------------------------------------------------------------------------------------------


def test_events(user: User) -> None:
    unions = {"agent event": AgentEvent, "run event": WorkflowEvent}
    player = recording(user, call(text("Hello."), end("Hello.", usage={"input": 10, "output": 5, "cost": 0.25})))
    turns = [("-p", "-a", player, "--output", output, "hi") for output in ("json", "stream-json")]
    refused, as_json, as_lines = atomic(user, ("run", "none", "--json"), *turns)
    lines = [
        *section("Run events: `atomic run --json`, logs/events.jsonl", describe_union(WorkflowEvent, unions)),
        *section("Agent events: in agent_activity, in recordings, in a chat", describe_union(AgentEvent, {})),
        *section("Chat, from the screen to the engine; defaults are left out", describe_union(Intent, unions)),
        *section("Chat, from the engine to the screen; defaults are left out", describe_union(ChatEvent, unions)),
        *section("`atomic run --json` that is refused", describe_tagged_values(refused.objects)),
        *section("`atomic -p --output json`", describe_tagged_values(as_json.objects)),
        *section("`atomic -p --output stream-json`", describe_tagged_values(as_lines.objects)),
    ]
    check({"events.txt": lines})


# -- public names -----------------------------------------------------------------------------------------------------


class Options(TypedDict, total=False):
    name: str
    timeout: float


def test_options_that_are_passed_on_are_shown_by_name() -> None:
    def build(id: str, **options: Unpack[Options]) -> None: ...

    lines = describe_function("build", build)
    assert lines == ["def build(id: str, *, name: str = ..., timeout: float = ...) -> None"]


def test_public_names() -> None:
    lines: list[str] = []
    for name in PUBLIC_PACKAGES:
        lines += section(f"atomic.{name}", describe_package(import_module(f"atomic.{name}")))
    check({"public_names.txt": lines})


# -- files ------------------------------------------------------------------------------------------------------------

SMALL = """
async def first(ctx):
    return {"said": [await ctx.deps.turn("say hello")]}

def each(item):
    return item

workflow = (graph(S).node("first", first).ask_user("colour", "Which colour?", options=["red", "blue"])
    .map("each", lambda state: ["one", "two"], tool_node("item", each)).compile())
"""
FIX = {
    "role": "fixer",
    "do": [
        {"write": {"part3.txt": "part 3\n"}},
        {"alone": "git add -- part3.txt && git commit -q -m 'Write part3.txt'"},
        {"say": "It is there."},
    ],
}


WRITTEN_BY_THE_USER = ("config.toml", "workflows")
JSON_COMMANDS = (
    ("sessions", "list"),
    ("sessions", "show", "ID"),
    ("workflows", "list"),
    ("workflows", "show", "small"),
    ("entities", "list"),
    ("entities", "show", "painter"),
    ("mcp", "list"),
    ("tasks", "show", "tasks.json"),
    ("tasks", "next", "tasks.json"),
    ("tasks", "check", "tasks.json"),
    ("trust", "--show"),
    ("config",),
    ("doctor",),
)


class Kept(msgspec.Struct, frozen=True):
    """A user's folders after a run or a chat, and which files there were then."""

    user: User
    files: list[str]

    @property
    def session(self) -> Path:
        [folder] = (self.user.home / ".atomic" / "sessions").iterdir()
        return folder


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Kept]:
    """Run Ralph, a small workflow and a chat, once for all tests."""
    users = {
        "Ralph": run_ralph(tmp_path_factory.mktemp("ralph")),
        "Small workflow (an agent, a question, a map)": run_small(tmp_path_factory.mktemp("small")),
        "Chat": run_chat(tmp_path_factory.mktemp("chat")),
    }
    return {title: Kept(user, files_in(user.home / ".atomic")) for title, user in users.items()}


def test_the_files_of_a_session(kept: Mapping[str, Kept]) -> None:
    lines: list[str] = []
    for title, one in kept.items():
        lines += section(title, one.files)
    check({"session_files.txt": lines})


def test_the_json_in_a_session(kept: Mapping[str, Kept]) -> None:
    lines = section(
        "session.json: all fields, with the defaults of those that may be missing", describe_fields(SessionRecord)
    )
    for title, one in kept.items():
        for path, described in shapes_in(one.session).items():
            lines += section(f"{title}: {path}", described)
    recorded = kept["Ralph"].user.home / "recording.jsonl"
    check({"session_json.txt": [*lines, *section("Ralph: --record FILE", describe_values(objects_in(recorded)))]})


def test_the_journal(kept: Mapping[str, Kept]) -> None:
    check({"journal.txt": describe_journal(kept["Ralph"].session / "journal.db")})


def test_the_json_of_commands(kept: Mapping[str, Kept]) -> None:
    one = kept["Small workflow (an agent, a question, a map)"]
    one.user.has_no_agents()
    agent(one.user.project / ".claude", "painter", "Paint.", head="tools: Read\nmodel: opus\n")
    servers(one.user.project / ".mcp.json", files={"command": "npx", "args": ["files"]})
    (one.user.project / "tasks.json").write_text(json.dumps(CYCLE))
    commands = [[one.session.name if word == "ID" else word for word in words] for words in JSON_COMMANDS]
    results = atomic(one.user, *((*words, "--json") for words in commands))
    lines: list[str] = []
    for words, result in zip(JSON_COMMANDS, results, strict=True):
        value: Any = json.loads(result.stdout)
        is_list = result.stdout.startswith("[")
        kind = "a list" if is_list else "an object"
        lines += section(f"atomic {' '.join(words)} --json: {kind}", describe_values(value if is_list else [value]))
    check({"json_output.txt": lines})


def run_ralph(folder: Path) -> User:
    """Run Ralph to its end: a plan, two tasks, a review that finds something, a fix, a second review."""
    review = reviewing(finding("part three is missing"), times=1)
    sandbox = Sandbox(folder, PLAN, writing("1"), writing("2"), review, APPROVE, FIX)
    flags = ("--verify", "test -f README.md", "--record", str(sandbox.user.home / "recording.jsonl"))
    outcome = asyncio.run(sandbox.ralph(*flags, GOAL, timeout=LIMIT))
    assert outcome.status == ("completed", "done", 0), outcome.stderr
    return sandbox.user


def run_small(folder: Path) -> User:
    """Run a workflow to its question, answer it, and run it to its end."""
    user = User(folder)
    workflow(user, "small", SMALL)
    player = recording(user, call(text("Hello."), end("Hello.", usage={"input": 10, "output": 5, "cost": 0.25})))
    [paused] = atomic(user, ("run", "small", "--agent", player, "--json"))
    assert status_of(paused) == ("paused", "question", 5), paused.stderr
    [answered] = atomic(user, ("answer", paused.objects[0]["run"], "red", "--json"))
    assert status_of(answered) == ("completed", "done", 0), answered.stderr
    return user


def run_chat(folder: Path) -> User:
    """Say one line to an agent and leave."""
    user = User(folder)
    player = recording(user, call(text("Hello."), end("Hello.", usage={"input": 10, "output": 5, "cost": 0.25})))
    [done] = atomic(user, ("chat", "--plain", "--agent", player), input="hi\n")
    assert (done.exit_code, "Hello." in done.stdout) == (0, True), done.stderr
    return user


def files_in(home: Path) -> list[str]:
    """List the files that Atomic made in its folder: mode and name."""
    paths = [path for path in home.rglob("*") if path.relative_to(home).parts[0] not in WRITTEN_BY_THE_USER]
    lines = [f"{stat.filemode(path.stat().st_mode)} {normalised(path.relative_to(home))}" for path in sorted(paths)]
    return list(dict.fromkeys(lines))


def normalised(path: Path) -> str:
    without_ids = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", str(path))
    return re.sub(r"\d+", "N", without_ids)


def shapes_in(session: Path) -> Mapping[str, list[str]]:
    """Describe the JSON files of a session; those whose names differ only in numbers together."""
    found: dict[str, list[Any]] = {}
    for path in sorted(session.rglob("*.json*")):
        found.setdefault(normalised(path.relative_to(session)), []).extend(objects_in(path))
    return {name: describe(values) for name, values in found.items()}


def objects_in(path: Path) -> list[Any]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [json.loads(path.read_text(encoding="utf-8"))]


def describe(values: Sequence[Any]) -> list[str]:
    if all("type" in value for value in values):
        return describe_tagged_values(values)
    return describe_values(values)


def describe_journal(path: Path) -> list[str]:
    """Describe the tables of a journal and the rows of a run."""
    with closing(sqlite3.connect(path)) as database:
        tables = [sql for (sql,) in database.execute("SELECT sql FROM sqlite_master ORDER BY name") if sql]
        pragmas = [
            f"{name} = {database.execute(f'PRAGMA {name}').fetchone()[0]}"
            for name in ("application_id", "user_version", "journal_mode", "page_size")
        ]
    rows: list[str] = []
    for kind in journal_rows.RowKind:
        body = getattr(journal_rows, f"{kind.name.title()}Body")
        rows += [f"{kind.value} {kind.name.lower()}", *(f"{INDENT}{line}" for line in describe_fields(body))]
    title = "Rows: number and kind, the fields of the body in their order (msgpack, without names)"
    return [*section("Tables", tables), *section("Settings", pragmas), *section(title, rows)]
