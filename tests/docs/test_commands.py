"""Every command of the documentation is run as it stands, by a shell, with a scripted agent.

The pages are read from top to bottom. What a reader would replace is replaced: the id `3f2a9c1e` by that of the newest
run, `NAME` by a workflow's name, the agents by one that plays a script.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_paths import DOCUMENTS, FENCE, ROOT
from tests.ralph.sandbox import APPROVE, Sandbox, writing
from tests.support.user import ATOMIC
from tests.support.waits import HANG

pytestmark = pytest.mark.full

# Their commands set up or test this repository, or install programs.
OTHER = ("AGENTS.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/install.md")
PAGES = [page for page in DOCUMENTS if str(page.relative_to(ROOT)) not in OTHER and "```sh\n" in page.read_text()]

PROGRAMS = ("atomic", "git", "jq", "gh", "env", "nohup", "echo", "cd", "mkdir", "pytest")
# Not run, and why.
LEFT_OUT = {
    "tmux": "needs a terminal",
    "atomic workflows dev": "ends only at Ctrl+C: tests/cli/test_short_lines.py",
    "atomic workflows add https": "needs the network: tests/cli/test_workflows_add.py",
    "atomic models": "the scripted agent has one model",
    "atomic completion zsh": "has a variable of zsh: tests/cli/test_completion.py",
    "atomic run ralph --pr": "needs a remote on the network: tests/ralph/test_publishing.py",
    "git clone <repository>": "has a placeholder",
    "cd atomic": "the folder of the clone",
    "make": "the target is checked by test_make_targets_exist",
    "uv": "installs a program",
    "python": "a server that does not end: tests/testing starts it",
    "ANTHROPIC_BASE_URL=": "needs that server",
}
# Commands that ask or draw a screen, and say without a terminal what they need; and runs that end with a question.
EXIT_CODES = {
    "atomic sessions prune": 2,
    "atomic discard 3f2a9c1e": 2,
    "atomic workflows add ~/shared/nightly.py": 4,
    "atomic run changelog": 5,
    "atomic run release --depth 5 1.2.0": 5,
    "atomic run changelog --record tests/changelog.jsonl": 5,
    "atomic run changelog --quiet v1.2 > CHANGES.md": 5,
    "atomic run changelog --json | tee events.jsonl": 5,
    "atomic run changelog --json | tail -n 1 | jq -r '.status, .resume'": 5,
    "atomic run changelog --json | tail -n 1 | jq '.status, .reason, .result, .resume'": 5,
    "atomic run release v1.2": 5,
    'atomic run plan-first "move the settings to a file"': 5,
}
# What an agent of the protocol ACP cannot do (a model by name): played in tests/examples/test_cookbook.py.
ELSEWHERE = ("atomic run cheap-chores",)

YES = json.dumps({"yes": True, "reason": "it is unused"})
TASKS = {"tasks": [{"id": str(number), "title": f"Write part {number}"} for number in range(1, 5)]}
SCRIPT = (
    {"role": "planner", "do": [{"say": json.dumps(TASKS)}]},
    *(writing(str(number)) for number in range(1, 5)),
    *(writing(task) for task in ("US-001", "a")),
    APPROVE,
    {"match": "changelog entries", "do": [{"say": '{"entries": ["Add a login page"]}'}]},
    {"match": "Review this diff", "do": [{"say": '{"findings": []}'}]},
    {"match": "Look yourself", "do": [{"say": YES}]},
    {"match": "Name the worst weakness", "do": [{"say": '{"verdict": "good"}'}]},  # of `atomic workflows new`
    {"match": "Review what was changed", "do": [{"say": '{"approved": true}'}]},
    {"do": [{"say": "It is done. LGTM\n\n<promise>COMPLETE</promise>"}]},
)
FILES = {
    "Makefile": "test:\n\ttrue\n",
    "specs/login.md": "Add a login page.\n",
    "PROMPT.md": "Add a login page.\n",
    "issue.md": "Add a login page.\n",
    "src/a.py": "a = 1\n",
    "utils/old.py": "b = 1\n",
    "tasks.json": '{"tasks": [{"id": "a", "title": "Write part a"}]}\n',
    "prd.json": '{"userStories": [{"id": "US-001", "title": "Write a part", "passes": false}]}\n',
    "my-project/.keep": "",
    **{f"scripts/{name}": "#!/bin/sh\ntrue\n" for name in ("build", "deploy", "smoke-test", "roll-back")},
}
GH = """case "$1 $2" in
"issue view") echo '{"title": "Crash at start", "body": "It crashes."}' ;;
"pr create") echo pull/7 ;;
esac"""


class Reader:
    """A reader of the documentation, with a project, workflows, a finished run of Ralph and a scripted agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sandbox = Sandbox(folder, *SCRIPT, git=False, isolate="auto")
        self.user = self.sandbox.user
        self.project = self.user.project
        for name, text in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        self.sandbox.make_repository()
        self.sandbox.git("init", "-q", "--bare", str(self.user.home / "remote.git"))
        self.sandbox.git("remote", "add", "origin", str(self.user.home / "remote.git"))
        for name in ("atomic", "pytest"):
            (self.user.bin / name).symlink_to(ATOMIC.with_name(name))
        for name, code in (("gh", GH), ("npm", "true")):
            self.user.bin.joinpath(name).write_text(f"#!/bin/sh\n{code}\n")
            self.user.bin.joinpath(name).chmod(0o755)
        # Any name of an agent is the scripted one.
        config = self.user.home / ".atomic" / "config.toml"
        text = config.read_text()
        command = re.findall(r"^command = .*$", text, re.MULTILINE)[0]
        config.write_text(
            text + "".join(f"[acp.{name}]\n{command}\n" for name in ("codex", "gemini", "goose", "claude"))
        )
        workflows = self.user.home / ".atomic" / "workflows"
        shutil.copytree(ROOT / "examples" / "workflows", workflows, ignore=shutil.ignore_patterns("__pycache__"))
        self.user.env |= {"ATOMIC_REPLAY_SPEED": "max", "PYTHONDONTWRITEBYTECODE": "1", "SHELL": "/bin/bash"}
        for order in ("atomic workflows new my-flow", "atomic trust", 'atomic run ralph "write the parts"'):
            done = self.run(order)
            assert done.returncode == 0, done.stderr
        (self.project / "login.jsonl").write_bytes((ROOT / "examples/tests/changelog.jsonl").read_bytes())

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line in the project, without a terminal."""
        return subprocess.run(
            ["bash", "-c", f"set -o pipefail; {self.filled(line)}"],
            cwd=self.project, env=self.user.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=HANG, check=False,
        )  # fmt: skip

    def prepare(self, line: str) -> None:
        """Have the files that the page tells the reader to write, and no others."""
        if line == "atomic workflows new my-flow":
            (self.project / ".atomic" / "workflows" / "my-flow.py").unlink()
        for name, folder in (("./other.py", self.project), ("~/shared/nightly.py", self.user.home)):
            if name in line:
                copy = folder / name.partition("/")[2]
                copy.parent.mkdir(exist_ok=True)
                shutil.copy(self.project / ".atomic" / "workflows" / "my-flow.py", copy)
        if line.startswith("atomic run release --depth"):
            [code] = [
                code for _, code in FENCE.findall((ROOT / "docs/workflows.md").read_text()) if "def release" in code
            ]
            (self.user.home / ".atomic" / "workflows" / "release.py").write_text(code)
        if line.startswith("pytest"):
            shutil.copytree(ROOT / "examples" / "tests", self.project / "tests", dirs_exist_ok=True)
            self.writes_changelog()

    def writes_changelog(self) -> None:
        shutil.copy(ROOT / "examples" / "workflows" / "changelog.py", self.project / ".atomic" / "workflows")

    def filled(self, line: str) -> str:
        """Replace what a reader would replace."""
        line = re.sub(r"^atomic trust$", "atomic trust HASH", line)  # what a yes does
        line = re.sub(r"(--agent (?:\w+=)?)(claude|opencode|copilot|OTHER)\b", r"\1acp:actor", line)
        line = re.sub(r"--model \S+ ", "", line)  # the scripted agent has one model
        line = re.sub(r"\b3f2a9c1e\b|\bID\b", lambda found: self.newest_run(), line)
        line = re.sub(r'\bHASH\b|"\$ATOMIC_TRUST"', lambda found: self.hash(), line)
        line = re.sub(r"atomic replay FILE", "atomic replay login.jsonl", line)
        line = line.replace("TASK[/ATTEMPT]", "1/1").replace("TASK", "1").replace(" DIR", " salvaged")
        line = (
            re.sub(r"\b(NAME|WORKFLOW|flow)\b(?!-)", "my-flow", line)
            .replace("SHELL", "bash")
            .replace("FILE", "tasks.json")
        )
        return line.removesuffix("&").replace("my-my-flow", "my-flow")

    def newest_run(self) -> str:
        records = (self.user.home / ".atomic" / "sessions").glob("*/session.json")
        return max(records, key=lambda path: path.stat().st_mtime_ns).parent.name[:8]

    def hash(self) -> str:
        shown = subprocess.run(
            [ATOMIC, "trust", "--show", "--json"], cwd=self.project, env=self.user.env, capture_output=True, check=True
        )
        return json.loads(shown.stdout)["hash"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, Path]:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "world").mkdir()
    reader = Reader(folder / "world")
    shutil.copytree(folder / "world", folder / "kept", symlinks=True)
    return reader, folder / "kept"


@pytest.fixture
def reader(prepared: tuple[Reader, Path]) -> Reader:
    """Put everything back to where it was after the last page."""
    reader, kept = prepared
    subprocess.run(["rm", "-rf", str(reader.folder)], check=True)
    shutil.copytree(kept, reader.folder, symlinks=True)
    return reader


def lines_of(page: Path) -> list[str]:
    """Return the command lines of a page, without comments."""
    lines: list[str] = []
    for language, code in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "sh":
            lines += [re.sub(r"\s+# .*", "", line).strip() for line in code.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def is_left_out(line: str) -> bool:
    return line.startswith((*LEFT_OUT, *ELSEWHERE))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_commands_of_a_page_work(reader: Reader, page: Path) -> None:
    wrong: list[str] = []
    for line in lines_of(page):
        if is_left_out(line):
            continue
        reader.prepare(line)
        done = reader.run(line)
        if line == "atomic workflows new changelog":
            reader.writes_changelog()
        if done.returncode != EXIT_CODES.get(line, 0) or "internal error" in done.stderr:
            wrong.append(f"{line}\n  exit code {done.returncode}: {done.stderr.strip()[-600:]}")
    assert not wrong, "\n".join(wrong)


def test_every_line_is_run_or_left_out_for_a_reason() -> None:
    lines = [line for page in PAGES for line in lines_of(page)]
    unknown = [line for line in lines if line.split()[0] not in PROGRAMS and not line.startswith(tuple(LEFT_OUT))]
    assert unknown == []
    assert [line for line in EXIT_CODES if line not in lines] == []
