"""`atomic demo`: run a workflow with recorded agents in a new repository, for users
without an agent.

Only the agents are recorded: the run, the checks, the files and the commits are real. At
the end the run's branch is merged, as `atomic accept` does it. The user's configuration,
entities and servers are not used, so the demo is the same for everyone.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.installation import Installation
from atomic.base.terminal import harmless
from atomic.cli.accept import accept_command
from atomic.cli.errors import CliError
from atomic.cli.run_host import host_run
from atomic.cli.streams import put, screen_width
from atomic.config import Settings
from atomic.git.calls import run_git
from atomic.loading.catalog import builtin_workflows
from atomic.runs.executor import WorkflowRun, run_workflow
from atomic.runs.host import Person
from atomic.wiring import Project, RunFlags
from atomic.workflows.definition import Demo, WorkflowDefinition

RECORDING = "recording.jsonl"
PROJECT = "project.json"
AUTHOR = "Atomic demo"
ADDRESS = "demo@localhost.invalid"
DATE = "2026-01-01T12:00:00+00:00"
_CHECK_PYTHON = "import sys; sys.exit(sys.version_info < (3, 8))"
_COMMAND_SECONDS = 20.0
_WIDEST = 100  # columns of prose


def run_demo(arguments: Arguments) -> int:
    """Run the demo of the first built-in workflow that has one, and return its exit
    code.
    """
    definition, demo = _first_demo()
    if shutil.which("git") is None:
        raise CliError("the demo needs git, which is not on PATH (install git, then try again)")
    folder = Path(tempfile.mkdtemp(prefix="atomic-demo-")).resolve()
    commands = _Commands(python_name())
    put(f"{textwrap.fill(demo.story, _columns())}\n\nRepository: {folder}\n")
    runs: list[WorkflowRun] = []

    async def start(person: Person | None) -> WorkflowRun:
        await make_project(demo, folder)
        runs.append(await _start(definition, demo, folder, commands))
        return runs[-1]

    code = host_run(start, as_json=False)
    if code == ExitCode.DONE:  # otherwise the run has printed the problem and how to resume
        _show_end(definition, demo, commands, runs[-1])
    return code


def _first_demo() -> tuple[WorkflowDefinition, Demo]:
    for definition in builtin_workflows():
        if definition.demo is not None:
            return definition, definition.demo
    raise CliError("no built-in workflow has a demo")


async def make_project(demo: Demo, folder: Path) -> None:
    """Create the repository of the demo: the same commit on each machine, for any git
    configuration.
    """
    for name, text in _files_of(demo).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    await run_git("-c", "init.defaultBranch=main", "init", "-q", "--template=", cwd=folder, env={})
    await run_git("add", "-A", cwd=folder, env={})
    await run_git("commit", "-q", "-m", "Begin", cwd=folder, env=identity())


def _files_of(demo: Demo) -> Mapping[str, str]:
    return msgspec.json.decode(Path(demo.folder, PROJECT).read_bytes(), type=dict[str, str])


def identity() -> dict[str, str]:
    """Return git's variables for author and date, so that the commits have the same ids
    everywhere.
    """
    people = ("AUTHOR", "COMMITTER")
    facts = {"NAME": AUTHOR, "EMAIL": ADDRESS, "DATE": DATE}
    return {f"GIT_{person}_{fact}": value for person in people for fact, value in facts.items()}


async def _start(definition: WorkflowDefinition, demo: Demo, folder: Path, commands: _Commands) -> WorkflowRun:
    project = Project(folder, user=folder, cwd=folder, settings=Settings())
    agent = f"replay:{os.path.join(demo.folder, RECORDING)}"
    runtime = await project.runtime(RunFlags(agents={"": agent}), definition.load())
    return run_workflow(definition, demo.prompt, runtime, config=commands.filled(demo.config))


class _Commands:
    """Fills the name of Python into the demo's commands."""

    def __init__(self, python: str) -> None:
        self._python = python

    def filled(self, value: Any) -> Any:
        match value:
            case str():
                return value.replace("{python}", self._python)
            case list():
                return [self.filled(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
            case Mapping():
                return {name: self.filled(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
            case _:
                return value


def python_name() -> str:
    """Return the name of a Python that can run the tests, as a user would type it."""
    for name in ("python3", "python"):
        if shutil.which(name) is not None and _output_of(name, "-c", _CHECK_PYTHON) is not None:
            return name
    return shlex.quote(sys.executable)


def _output_of(*words: str, cwd: Path | None = None) -> str | None:
    """Return the output of a command; None if it fails."""
    env = {**os.environ, "PYTHONUTF8": "1"}
    try:
        done = subprocess.run(
            words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _show_end(definition: WorkflowDefinition, demo: Demo, commands: _Commands, run: WorkflowRun) -> None:
    report = run.session.dir / "report.md"
    folder = Path(run.session.record.project)
    if report.exists():
        put(f"\n{_rule('The report')}\n\n{_wrapped(harmless(report.read_text('utf-8', 'replace')))}")
    _accept(run.id, folder)
    output = _output_of(*shlex.split(commands.filled(demo.look)), cwd=folder)
    if output:
        put(f"\n{_rule('What was built')}\n\n{harmless(output)}")
    put(f"\n{_rule('All of this is real')}\n\nTests: {commands.filled(demo.tests)}\n\n")
    put(_hints(definition, demo, commands, run.id, folder))


def _wrapped(markdown: str) -> str:
    """Wrap the prose of a report at the width of the terminal; keep tables and code."""
    lines: list[str] = []
    is_code = False
    for line in markdown.splitlines():
        is_code ^= line.startswith("```")
        mark = re.match(r"(?:> ?|- |\s)*", line)
        if is_code or line.startswith("|") or mark is None:
            lines.append(line)
            continue
        indent = mark[0].replace("-", " ")
        lines += textwrap.wrap(
            line, _columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [line]
    return "".join(f"{line}\n" for line in lines)


def _accept(id: str, folder: Path) -> None:
    """Merge the run's branch into the checkout, and show its commits. Raises CliError."""
    put(f"\n{_rule('Accept the work')}\n\n$ atomic accept {id[:8]}\n")
    accept_command(Arguments({}, [id]))
    words = ("log", "--graph", "--oneline", "--decorate")
    commits = asyncio.run(run_git(*words, cwd=folder, env={}))
    put(f"\n$ git {' '.join(words)}\n{harmless(commits)}")


def _hints(definition: WorkflowDefinition, demo: Demo, commands: _Commands, id: str, folder: Path) -> str:
    atomic = _atomic()
    here = [
        (f"cd {shlex.quote(str(folder))}", ""),
        (commands.filled(demo.play), "try the result; Ctrl+C ends it"),
        ("git log --stat", "every commit of the workers and of the fixer"),
        (f"{atomic} salvage {id[:8]}", "what each attempt left, also those that failed"),
        (f"{atomic} sessions show {id[:8]}", "the steps, and which agent worked when"),
        (f"{atomic} sessions report {id[:8]}", "the report again"),
    ]
    real = [
        (f"{atomic} doctor", "the agents that you can use, and how to get one"),
        (f'{atomic} run {definition.name} --dry-run "…"', "only the plan"),
        (f'{atomic} run {definition.name} "…"', "the same with your agent and your goal"),
    ]
    text = f"Look at it:\n{_listed(here)}\nWith a real agent, in your own project:\n{_listed(real)}"
    if atomic != "atomic":
        text += f"\nSo that `atomic` is enough: {Installation().on_path}\n"
    return text


def _listed(rows: list[tuple[str, str]]) -> str:
    """Return commands with their descriptions on the same line, or above if the lines are
    too long.
    """
    width = max(len(command) for command, what in rows if what)
    lines = [f"  {command.ljust(width)}  {what}".rstrip() for command, what in rows]
    if any(len(line) > _columns() for (_, what), line in zip(rows, lines, strict=True) if what):
        lines = [f"  # {what}\n  {command}" if what else f"  {command}" for command, what in rows]
    return "".join(f"{line}\n" for line in lines)


def _atomic() -> str:
    """Return how to call this command from another folder."""
    if shutil.which("atomic") is not None:
        return Installation().run  # uvx puts a folder of its cache on the PATH
    called = os.path.abspath(sys.argv[0])
    is_module = os.path.basename(called) == "__main__.py"
    return f"{shlex.quote(sys.executable)} -m atomic" if is_module else shlex.quote(called)


def _columns() -> int:
    return min(screen_width() or _WIDEST, _WIDEST)


def _rule(title: str) -> str:
    return f"── {title} ".ljust(min(_columns(), 78), "─")
