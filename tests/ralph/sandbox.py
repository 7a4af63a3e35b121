"""A user with a git repository and a scripted agent, who runs Ralph by the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.redaction import Redactor
from atomic.graph import MemoryJournal
from atomic.sessions.facts import Facts
from tests.support import fake_acp
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User
from tests.support.waits import HANG

GOAL = "write the parts"
TASKS = [{"id": "1", "title": "Write part one"}, {"id": "2", "title": "Write part two", "blocked_by": ["1"]}]
PLAN = {"role": "planner", "do": [{"say": json.dumps({"tasks": TASKS})}]}
APPROVE = {"role": "reviewer", "do": [{"say": json.dumps({"verdict": "approve", "findings": [], "summary": "ok"})}]}


def facts_in(folder: Path, redactor: Redactor | None = None) -> Facts:
    """Return facts of a run in a journal in memory; their copies are in the folder."""
    facts = Facts(folder, redactor or Redactor([]))
    facts.open(MemoryJournal(), "run")
    return facts


def worker(task: str, *steps: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    return {"role": "worker", "task": task, "do": [*steps, {"say": "All is done, and it is excellent."}], **facts}


def writing(task: str, **facts: Any) -> dict[str, Any]:
    """Return a worker that writes its file and commits it, unless that is done already."""
    name = f"part{task}.txt"
    commit = f"git add -- {name} && (git diff --cached --quiet || git commit -q -m 'Write {name}')"
    return worker(task, {"write": {name: f"part {task}\n"}}, {"alone": commit}, **facts)


def finding(title: str, priority: int | None = 1) -> dict[str, Any]:
    return {"title": title, "body": f"{title}, really", "priority": priority, "location": "part1.txt:1"}


def reviewing(*findings: dict[str, Any], verdict: str = "request_changes", **facts: Any) -> dict[str, Any]:
    said = json.dumps({"verdict": verdict, "findings": list(findings), "summary": "looked"})
    return {"role": "reviewer", "do": [{"say": said}], **facts}


class Outcome(msgspec.Struct, frozen=True):
    """How a command ended."""

    exit_code: int
    events: list[dict[str, Any]]
    stderr: str

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def status(self) -> tuple[str, str, int]:
        return self.end.get("status", ""), self.end.get("reason", ""), self.exit_code

    def steps(self, type: str) -> list[str]:
        """Return the steps of the events of a type."""
        return sorted(event["step_id"] for event in self.events if event["type"] == type)

    @property
    def warnings(self) -> str:
        return "\n".join(event["text"] for event in self.events if event["type"] == "warning")


class RalphProject:
    """A user with a project, who runs Ralph by the command."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.project = user.project

    def make_repository(self) -> None:
        """Commit the files of the project."""
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "A User")
        self.git("config", "user.email", "user@example.invalid")
        self.commit_all("Begin")

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=cwd or self.project, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit_all(self, subject: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", subject)

    async def ralph(self, *words: str, timeout: float = HANG) -> Outcome:
        return await self.atomic("run", "ralph", "--json", *words, timeout=timeout)

    async def resume(self, *words: str, timeout: float = HANG) -> Outcome:
        return await self.atomic("resume", self.session.name, "--json", *words, timeout=timeout)

    async def atomic(self, *words: str, timeout: float = HANG) -> Outcome:
        done = await self.user.atomic(*words, timeout=timeout)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return Outcome(done.exit_code, events, done.stderr)

    @property
    def session(self) -> Path:
        """Return the folder of the only session."""
        [folder] = (self.user.home / ".atomic" / "sessions").iterdir()
        return folder

    @property
    def report(self) -> str:
        return (self.session / "report.md").read_text()

    def evidence(self, task: str) -> dict[str, Any]:
        return json.loads((self.session / "evidence" / f"{task}.json").read_text())

    @property
    def statuses(self) -> dict[str, str]:
        tasks: Sequence[Mapping[str, Any]] = json.loads((self.session / "tasks.json").read_text())["tasks"]
        return {task["id"]: task["status"] for task in tasks}


class Sandbox(RalphProject):
    """The user, the repository and the script of a fake agent.

    Ralph works in the checkout itself, unless `isolate` is another kind.
    """

    def __init__(self, folder: Path, *script: Mapping[str, Any], git: bool = True, isolate: str = "none") -> None:
        super().__init__(User(folder))
        self.log = folder / "prompts.jsonl"
        self.script = folder / "script.json"
        self.play(*script)
        command = [sys.executable, "-I", "-S", fake_acp.PROGRAM, "--forgetful"]
        command += ["--script", str(self.script), "--log", str(self.log)]
        self.user.sets(
            f'agent = "acp:actor"\n[acp.actor]\ncommand = {json.dumps(command)}\n'
            f'[workflows.ralph]\nisolate = "{isolate}"\n'
        )
        (self.project / "README.md").write_text("a project\n")
        if git:
            self.make_repository()

    def play(self, *script: Mapping[str, Any]) -> None:
        self.script.write_text(json.dumps(list(script)))

    @property
    def prompts(self) -> list[dict[str, Any]]:
        return fake_acp.read_log(str(self.log))

    @property
    def callers(self) -> list[str]:
        """Return role, task and attempt of each prompt, in order."""
        return [" ".join(filter(None, (one["role"], one.get("task"), one["attempt"]))) for one in self.prompts]


async def with_open_question(folder: Path) -> Sandbox:
    """Start a run whose check is red, at a terminal, and leave with Ctrl+D at the question about it."""
    sandbox = Sandbox(folder, PLAN, writing("1"), writing("2"), APPROVE)
    words = (ATOMIC, "run", "ralph", "--verify", "test -f part2.txt", GOAL)
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("What should the run do?")
        terminal.type("\x04")
        assert await terminal.exit_code() == 5
    return sandbox
