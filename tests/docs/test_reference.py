"""Pages that repeat the source are current, and the messages and answers that readers look for are there."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from atomic.config import load_settings
from scripts import ports, reference
from tests.docs.test_paths import DOCUMENTS, FENCE, PACKAGE, ROOT, anchors, every_document

DOCS = ROOT / "docs"
PORTS = sorted((ROOT / "tests" / "ports").glob("test_*.py"))
SHORTEST = 9  # characters of a message between two placeholders that can be recognized
NOT_OURS = ("error: externally-managed-environment", "atomic: command not found")  # of pip and of the shell
CELL = 30  # words in a cell of a table; a longer one is a paragraph


def test_generated_pages_are_current() -> None:
    stale = [page for page, text in reference.pages().items() if page.read_text(encoding="utf-8") != text]
    assert stale == [], "run `make reference`"
    assert ports.page() == ports.PAGE.read_text(encoding="utf-8"), "run `make reference`"


def test_every_port_names_its_source() -> None:
    tests = re.findall(r"^(?:async )?def (test_\w+)", "".join(map(Path.read_text, PORTS)), re.MULTILINE)
    assert sorted(port.test for port in ports.ports()) == sorted(tests)


# -- messages


def messages() -> list[str]:
    """Return the messages that the page about troubleshooting explains."""
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^### `(.+)`$", text, re.MULTILINE)


def texts() -> Iterator[str]:
    """Yield the texts of the source and of the examples; a placeholder is `…`."""
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_every_explained_message_is_in_the_source() -> None:
    known = list(texts())
    parts = {
        message: [part.strip() for part in message.split("…")] for message in messages() if message not in NOT_OURS
    }
    missing = [
        message
        for message, pieces in parts.items()
        if not all(any(piece in text for text in known) for piece in pieces) or max(map(len, pieces)) < SHORTEST
    ]
    assert len(parts) > 30
    assert missing == []


# -- the questions of a newcomer


QUESTIONS = re.compile(r"^\| ([^|]+\?) \| \[.+\]\((\S+)\) \|$", re.MULTILINE)

# A word or command that the answer has on the first page that is opened, below its heading if there is one.
ANSWERS = {
    "How do I install it?": "uv tool install",
    "Which agents can I use?": "--agent",
    "Can I try it without an agent or a key?": "atomic demo",
    "What does a night cost?": "sessions report",
    "How do I cap the cost?": "--max-cost",
    "Who pays: my plan or my API key?": "ANTHROPIC_API_KEY",
    "How long may a turn take?": "--turn-limit",
    "What happens at a usage limit?": "until the reset",
    "What happens when my laptop sleeps?": "wakes up",
    "What happens after `kill -9` or a reboot?": "atomic resume ID",
    "Where are my runs?": "~/.atomic/sessions/",
    "What is in the folder of a run?": "journal.db",
    "What do I look at in the morning?": "Changed tests",
    "How do I undo task 3?": "atomic undo ID 3",
    "Can I keep working while Ralph runs?": "keep working",
    "Does it touch my uncommitted files?": "No.",
    "Does my own workflow work in a copy?": "isolate=True",
    "How does it know that a task is done?": "passes",
    "Is it safe in a cloned repository?": "atomic trust",
    "How does a script approve code?": "atomic trust HASH",
    "Can it start if my tests are red?": "These tests may fail",
    "How do I stop a run?": "atomic stop ID",
    "How do I answer a question from another terminal?": "atomic answer ID ANSWER",
    "How do I run it in CI?": "runs-on",
    "How do I run it every night with cron?": "30 2 * * *",
    "How does a script read the result?": "Standard output has the result",
    "What do the exit codes mean?": "max_cost",
    "How does another program send data to a run?": "atomic signal ID NAME",
    "What leaves my machine?": "telemetry",
}


def below(page: Path, anchor: str) -> str:
    """Return the text of a section with the sections inside of it, or of the whole page."""
    text = page.read_text(encoding="utf-8")
    if not anchor:
        return text
    for found in re.finditer(r"^(#+) +(.+)$", text, re.MULTILINE):
        if re.sub(r"[^\w\- ]", "", found[2].lower()).replace(" ", "-") == anchor:
            rest = text[found.end() :]
            end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
            return rest[: end.start()] if end else rest
    raise AssertionError(f"{page.name} has no heading {anchor}: {anchors(page)}")


def test_frequent_questions_are_answered_on_the_first_page_opened() -> None:
    asked = dict(QUESTIONS.findall((DOCS / "index.md").read_text(encoding="utf-8")))
    assert list(asked) == list(ANSWERS)
    unanswered: list[str] = []
    for question, target in asked.items():
        name, _, anchor = target.partition("#")
        if ANSWERS[question] not in " ".join(below(DOCS / name, anchor).split()):
            unanswered.append(question)
    assert unanswered == []


# -- snippets and tables


@every_document()
def test_data_of_snippets_can_be_read(document: Path) -> None:
    """Read the blocks in TOML and JSON, and compile those in Python that are not shortened."""
    for language, code in FENCE.findall(document.read_text(encoding="utf-8")):
        if language == "toml":
            tomllib.loads(code)
        elif language == "json":
            lines = code.splitlines() if code.count("\n{") else [code]
            for line in lines:
                if "…" not in line and "[...]" not in line:
                    json.loads(line)
        elif language == "python":
            ast.parse(code.replace("…", "..."))


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if "decisions" not in path.parts and path.parent != ROOT]
)
def test_no_cell_of_a_table_is_a_paragraph(document: Path) -> None:
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    cells = [cell for line in prose.splitlines() if line.startswith("|") for cell in re.split(r"(?<!\\)\|", line)]
    assert [cell.strip() for cell in cells if len(cell.split()) > CELL] == []


def test_settings_in_the_documentation_are_settings(tmp_path: Path) -> None:
    """Load each block of settings as a user's configuration, without a warning."""
    for name in ("configuration.md", "plans.md", "workspaces.md", "tui.md", "agents/acp.md", "agents/claude.md"):
        for language, code in FENCE.findall((DOCS / name).read_text(encoding="utf-8")):
            if language == "toml":
                (tmp_path / "config.toml").write_text(code, encoding="utf-8")
                assert (name, load_settings(tmp_path, tmp_path).warnings) == (name, ())
