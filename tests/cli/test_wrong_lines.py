"""Fifty command lines that people type wrongly: no traceback, one sentence each, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
import pytest

from atomic.cli.verbs import VERBS
from tests.golden.test_golden import GOLDEN, Result
from tests.support.user import User

# What is typed, and a part of the remedy that the one line must have.
LINES = {
    "rnu ralph x": 'did you mean "run"?',
    "rlaph x": 'did you mean "ralph"?',
    "sesions": 'did you mean "sessions"?',
    "sessions lst": 'did you mean "list"?',
    "sessions nothing": "there are: list, show, report",
    "session list": 'did you mean "sessions"?',
    "workflow list": 'did you mean "workflows"?',
    "workflows creat x": "there are: list, show, check",
    "loop x": 'atomic run loop "…"',
    "flow.py": "atomic run flow.py",
    "./flow.py": "atomic run ./flow.py",
    "start": "atomic run WORKFLOW",
    "fix the bug": 'atomic -p "…"',
    "help nothing": "atomic --help lists them",
    "help sessions nothing": "there are: list",
    "helpp": 'did you mean "help"?',
    "-v": 'did you mean "-V"?',
    "--versio": 'did you mean "--version"?',
    "--halp": 'did you mean "--help"?',
    "--continu": 'did you mean "--continue"?',
    "-x": 'Unknown flag: "-x"',
    "-p": 'atomic -p "PROMPT"',
    "-p x --output yaml": "it is one of text, json, stream-json",
    "-p x --json --output text": "leave out --json",
    "-p x --jsn": 'did you mean "--json"?',
    "-p x --continue": "leave out --continue, or -p",
    "-p x --agent": "--agent AGENT",
    "-p x --agent clade": 'did you mean "claude"?',
    "--json": "--json only works with -p",
    "-c": "atomic --help lists the rest",
    "login": "AGENT",
    "login clade": 'did you mean "claude"?',
    "chat -c --resume 12345678": "choose one",
    "run": "atomic run WORKFLOW",
    "run --json": "atomic run WORKFLOW",
    "run rlph x": 'did you mean "ralph"?',
    "run nope.py": "nope.py: it cannot be read",
    "run ./nope/flow.py x": "nope/flow.py: it cannot be read",
    "run ralph --max-coast 5 x": 'did you mean "--max-cost"?',
    "run ralph --max-cost five x": "give dollars, such as 2.50",
    "run ralph --max-cost -5 x": "a negative value is not allowed (--max-cost USD)",
    "run ralph --max-time 6 x": "such as 90s, 30m or 6h",
    "run ralph --workers two x": "give a whole number",
    "run ralph --on-limit sleep x": "it is one of wait, stop, switch",
    "run ralph --agent worker= x": "ROLE=NAME",
    "run ralph --agent replay:nope.jsonl x": "replay: nope.jsonl",
    "ralph --jsn x": 'did you mean "--json"?',
    "resume": "atomic status lists its runs",
    "resume --review-rounds 5": 'Unknown flag: "--review-rounds"',
    "resume abc": "atomic sessions lists them",
    "resume 12345678": "atomic sessions lists them",
    "runs": "atomic ps",
    "start ralph": "atomic run WORKFLOW",
    "list": "atomic workflows list",
    "show": "atomic status ID",
    "report": "atomic sessions report ID",
    "kill 12345678": "atomic stop ID",
    "delete": "atomic sessions prune",
    "cost": "atomic ps lists what each run has cost",
    "install": "atomic doctor",
    "update": "uv tool upgrade",
    "uninstall": "uv tool uninstall",
    "web": "atomic chat --web",
    "pr": "atomic ralph --pr",
    "codex hi": "atomic --agent codex",
    "claude hi": "atomic --agent claude",
    "answer yes": "No run of this folder waits for an answer",
    "accept": "This folder has no runs yet",
    "diff": "This folder has no runs yet",
    "undo 3": "This folder has no runs yet",
    "stop": "This folder has no runs yet",
    "answer": "atomic answer [ID] [QUESTION] ANSWER",
    "attach": "This folder has no runs yet",
    "signal 12345678": "NAME",
    "stop 1 2 3": 'takes no "2"',
    "logs": 'atomic ralph "GOAL"',
    "logs 12345678": "atomic sessions lists them",
    "status 12345678": "atomic sessions lists them",
    "ps now": 'takes no "now"',
    "version now": 'takes no "now"',
    "tasks": "atomic tasks",
    "tasks nope.json": "nope.json",
    "sessions list --status done": "it is one of running",
    "sessions show --html": "atomic sessions show ID",
    "workflows dev": "atomic workflows dev NAME",
    "workflows dev ralph": "has no file to watch",
    "workflows dev ./flow.py --recording nope.jsonl": "there is no such file",
    "workflows new two words": 'takes no "words"',
    "workflows new ../x": "use one word",
    "completion": "bash, zsh, fish",
    "completion tcsh": "choose one of bash, zsh, fish",
    "completion --dry-run bash": "--install --dry-run",
    "completion --install": "atomic completion --install bash",
    "replay nope.jsonl": "nope.jsonl",
    "trust abc": "atomic trust --show prints that",
    "doctor --jsn": 'did you mean "--json"?',
    "models --agent codx": "",
    "config --all": 'Unknown flag: "--all"',
}
HANG = 600


@pytest.mark.ci
def test_each_wrong_line_gets_one_sentence_that_helps(user: User) -> None:
    (user.project / "flow.py").write_text(
        "from atomic.workflows import *\nworkflow = graph(State).tool('a', lambda: 1)\n"
    )
    lines = list(LINES)
    orders = [{"words": line.split(), "cwd": str(user.project), "input": ""} for line in lines]
    done = subprocess.run(
        (sys.executable, GOLDEN / "fork_server.py", user.home.parent),
        input=msgspec.json.encode(orders), env=user.env, capture_output=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    wrong: list[str] = []
    for line, result in zip(lines, msgspec.json.decode(done.stdout, type=list[Result]), strict=True):
        said = result.stderr.splitlines()
        is_one_line = len(said) == 1 and said[0].startswith("atomic: ") and LINES[line] in said[0]
        is_clean = not re.search(r"Traceback|internal error|_Error\b", result.stderr + result.stdout)
        if result.exit_code not in (1, 2, 4) or not is_one_line or not is_clean:
            wrong.append(f"atomic {line}: {result.exit_code} {result.stderr!r}")
    assert not wrong, "\n".join(wrong)
    assert len(lines) >= 50


def test_every_verb_is_in_one_of_these_lines_or_takes_no_words() -> None:
    tried = {line.split()[0] for line in LINES}
    left = {name for name, verb in VERBS.items() if name not in tried and verb.needed}
    assert left <= {"diff", "accept", "undo", "discard", "salvage"}
