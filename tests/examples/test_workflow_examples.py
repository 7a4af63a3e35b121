"""Each example workflow does what its first lines say: `atomic run` on real Claude Code with a scripted model."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.processes import ExecResult, execute
from atomic.testing import Call, ModelServer, claude_env
from tests.support.user import User, objects

pytestmark = pytest.mark.ci

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "workflows"

# The agent counts its turns in a file, and says another thing in each.
STAGES = r"""
n=$(($(cat turns 2>/dev/null || echo 0) + 1)); echo $n > turns
case $n in
1) echo "a page" > login.html; echo changed ;;
2) echo '{"approved": false, "findings": ["there is no test @@stages@@"]}' ;;
3) echo "a test" > test.html; echo repaired ;;
*) echo '{"approved": true, "findings": []}' ;;
esac
"""
SCRIPTS: Any = {"stages": [Call("Bash", {"command": STAGES}), "{{tool_result}}"]}


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.fixture(autouse=True)
async def server(user: User) -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPTS, default="A short text.") as server:
        user.env |= claude_env(server, user.home) | {"PATH": user.env["PATH"]}
        shutil.copytree(EXAMPLES, user.project / ".atomic" / "workflows", ignore=shutil.ignore_patterns("__pycache__"))
        hash = msgspec.json.decode((await user.atomic("trust", "--show", "--json")).stdout)["hash"]
        assert (await user.atomic("trust", hash)).exit_code == 0
        yield server


async def run(user: User, *words: str) -> tuple[ExecResult, list[str]]:
    """Run a workflow; the nodes that were completed, in their order."""
    done = await user.atomic("run", *words[:1], "--agent", "claude", "--json", *words[1:])
    return done, completed(done)


def completed(done: ExecResult) -> list[str]:
    return [
        str(one["node"]) for one in objects(done) if (one["type"], one.get("status")) == ("node_ended", "completed")
    ]


async def test_all_of_them_can_be_loaded(user: User) -> None:
    done = await user.atomic("workflows", "check")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "no problems" in done.stderr


async def test_review_cycle_repairs_until_the_review_approves(user: User) -> None:
    done, nodes = await run(user, "review-cycle", "add a login page @@stages@@")
    assert (done.exit_code, nodes) == (0, ["change", "review", "repair", "review"])
    assert (user.project / "login.html").read_text() == "a page\n"
    assert (user.project / "test.html").read_text() == "a test\n"


async def test_summarize_files_asks_an_agent_for_each(user: User, server: ModelServer) -> None:
    for name in ("a.md", "b.md", "c.txt"):
        (user.project / name).write_text(name)
    done, nodes = await run(user, "summarize-files", "*.md")
    assert (done.exit_code, nodes[0], nodes[-1]) == (0, "find", "join")
    asked = [call.user_text for call in server.calls if "Summarise the file" in call.user_text]
    assert sorted(word for text in asked for word in text.split() if word.endswith(".md")) == ["a.md", "b.md"]
    (joined,) = [call.user_text for call in server.calls if "Join these summaries" in call.user_text]
    assert "a.md: A short text.\nb.md: A short text." in joined
    nothing, _ = await run(user, "summarize-files", "*.none")
    assert (nothing.exit_code, "no file is named by *.none" in nothing.stdout) == (1, True)


async def test_release_waits_for_an_answer_and_writes_the_notes_once(user: User, server: ModelServer) -> None:
    for words in (
        ("init", "-q"),
        ("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"),
    ):
        assert (await execute("git", *words, cwd=user.project, env=user.env)).exit_code == 0
    user.env |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}
    asked, nodes = await run(user, "release", "v1.0")
    assert (asked.exit_code, nodes) == (5, ["notes"])
    ended = objects(asked)[-1]
    assert "atomic answer" in str(ended["message"]) + asked.stderr + str(ended["resume"])
    answered = await user.atomic("answer", "--json", str(ended["run"]), "approve", "yes")
    assert (answered.exit_code, completed(answered)[-1]) == (0, "tag")
    tags = await execute("git", "tag", "--list", "-n", cwd=user.project, env=user.env)
    assert tags.stdout.split() == ["v1.0", "A", "short", "text."]
    assert len([call for call in server.calls if "Write release notes" in call.user_text]) == 1


async def test_document_calls_the_other_workflow(user: User) -> None:
    (user.project / "a.md").write_text("a")
    done, nodes = await run(user, "document", "*.md")
    assert (done.exit_code, nodes[0], nodes[-1]) == (0, "files/find", "write")
    assert (user.project / "OVERVIEW.md").read_text() == "# Overview\n\nA short text.\n"
