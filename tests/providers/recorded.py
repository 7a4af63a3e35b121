"""A small task that each real agent does with the scripted model, to record and replay.

`scripts/record.py` writes the recordings in `recordings/`. The tests replay them and make
new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomic.providers import AgentEvent, SessionOptions, require_provider
from atomic.testing import ModelServer, Think
from atomic.testing.conformance.agents import AGENTS, Words
from atomic.testing.conformance.case import environment
from tests.support.programs import CACHE
from tests.support.repositories import ENVIRONMENT, new_repository

RECORDINGS = Path(__file__).with_name("recordings")
PROMPTS = (
    "[atomic role=planner attempt=1]\n@@plan@@ Plan the work.",
    "[atomic role=worker task=1 attempt=1]\n@@work@@ Write the greeting and commit it.",
    "[atomic role=reviewer attempt=1]\n@@review@@ Look at it.",
)
BEFORE = {"readme.md": "# A project\n"}
AFTER = {
    "readme.md": ("file", b"# A project\n"),
    "greeting.txt": ("file", b"good morning\n"),
    "notes.txt": ("file", b"not committed\n"),
}
COMMITS = ["Add a greeting", "first"]

# The author and date of commits, so that a commit has the same id on each machine.
_DATE = "2026-01-02T03:04:05+00:00"
IDENTITY = {
    **{name: value for name, value in ENVIRONMENT.items() if name.startswith("GIT_")},
    "GIT_AUTHOR_DATE": _DATE,
    "GIT_COMMITTER_DATE": _DATE,
}


def project(folder: Path) -> Path:
    """Create the project before the work."""
    return new_repository(folder, BEFORE, date=_DATE)


def scripts(words: Words, folder: Path) -> dict[str, Any]:
    """Return the scripts of the model."""
    file = folder / "greeting.txt"
    shell = "git add -A && git commit -q -m 'Add a greeting' && echo not committed > notes.txt && echo committed"
    return {
        "plan": [[Think("One step will do."), '{"tasks": [{"id": "1", "title": "Write the greeting"}]}']],
        "work": [
            ["I write it first.", words.write(file, "hello\n")],
            [words.edit(file, "hello", "good morning")],
            [words.bash(shell)],
            "The greeting is there: {{tool_result}}\n<promise>COMPLETE</promise>",
        ],
        "review": ['{"verdict": "approve", "findings": [], "summary": "Fine."}'],
    }


async def record_run(agent: str, file: Path, folder: Path, home: Path) -> list[list[AgentEvent]]:
    """Record the real agent at work and return the events of each turn."""
    kind = AGENTS[agent]
    home.mkdir(parents=True, exist_ok=True)
    async with ModelServer(scripts(kind.words, folder)) as server:
        variables = kind.environment(server, home, CACHE)
        with environment({**variables, **IDENTITY}, home):
            options = SessionOptions(cwd=folder, record=file, model=kind.models[0])
            turns: list[list[AgentEvent]] = []
            async with require_provider(agent).open(options) as session:
                for prompt in PROMPTS:
                    turns.append([event async for event in session.send(prompt)])
    return turns


def settle(file: Path, replaced: Mapping[str, str]) -> None:
    """Replace folders, ids and times, so that every run writes the same recording."""
    header, *calls = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    header["command"] = ["scripts/record.py", file.stem]
    names = dict(replaced)
    for call in calls:
        names[call["session"]] = "session-1"
        for _, event in call["events"]:
            if "id" in event:
                names.setdefault(event["id"], f"id-{len(names)}")
        call["events"] = [[round(at / 100, 2), event] for at, (_, event) in enumerate(call["events"])]
    text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (header, *calls))
    for real, name in names.items():
        text = text.replace(json.dumps(real, ensure_ascii=False)[1:-1], name)
    file.write_text(text, "utf-8")
