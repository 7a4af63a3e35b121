"""What the skill `create-workflow` teaches is true: its example loads, its dry run plays, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import atomic
import atomic.entities
from atomic.base.errors import ExitCode
from tests.support.user import User

ROOT = Path(__file__).parents[2]
SKILL = Path(atomic.entities.__file__).parent / "builtin/skills/create-workflow/SKILL.md"


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", SKILL.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return found


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.parametrize("language", ["python", "py"])  # a graph, and the same as a function
async def test_its_workflows_pass_their_checks_and_the_dry_run(user: User, language: str) -> None:
    folder = user.home / ".atomic" / "workflows"
    folder.mkdir(parents=True)
    (folder / "page.py").write_text(block(language), encoding="utf-8")
    checked = await user.atomic("workflows", "check")
    assert (checked.exit_code, checked.stdout) == (0, "")
    drawn = (await user.atomic("workflows", "graph", "page")).stdout
    assert ("summarize" if language == "python" else "page") in drawn

    (user.project / "a.md").write_text("# A\n")
    (user.project / "dry.jsonl").write_text(block("jsonl"), encoding="utf-8")
    done = await user.atomic("run", "page", "--agent", "replay:dry.jsonl", "*.md")
    assert done.exit_code == 0, done.stderr
    assert (user.project / "page.md").read_text() == "a.md: It is about tests.\n"


async def test_its_commands_exist_and_its_exit_codes_are_atomics(user: User) -> None:
    text = SKILL.read_text("utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d) \| ", text, re.MULTILINE)}
    assert codes == {code for code in ExitCode if code < ExitCode.SIGNALLED}
    for verb in set(re.findall(r"`atomic (\w+)", text)):
        assert (await user.atomic(verb, "--help")).exit_code == 0


def test_the_plugin_has_the_same_text_and_version() -> None:
    assert (ROOT / "plugin/skills/create-workflow/SKILL.md").read_bytes() == SKILL.read_bytes()
    assert f'"version": "{atomic.__version__}"' in (ROOT / "plugin/.claude-plugin/plugin.json").read_text("utf-8")


def test_the_index_for_models_names_files_that_exist() -> None:
    text = (ROOT / "llms.txt").read_text("utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages <= set(targets)
