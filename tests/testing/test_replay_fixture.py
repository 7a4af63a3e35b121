"""Test the fixture for workflow authors in a project of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from atomic.processes import ExecResult, execute

CONFTEST = 'pytest_plugins = ["atomic.testing.pytest_plugin"]\n'
TEST = """
from atomic.workflows import Bridge, SubagentRequest


async def test_the_workflow(replay, tmp_path):
    provider = replay("login.jsonl", all_used=True)
    bridge = Bridge(provider, cwd=tmp_path)
    result = await bridge.spawn(SubagentRequest("", "Write the login page."))
    assert (result.success, result.text) == (True, "Written.")
    assert (tmp_path / "login.html").read_text() == "<form>\\n"
"""
PATCH = """\
diff --git a/login.html b/login.html
new file mode 100644
--- /dev/null
+++ b/login.html
@@ -0,0 +1 @@
+<form>
"""


def call(prompt: str) -> dict[str, object]:
    end = {"type": "turn_ended", "reason": "done", "text": "Written."}
    return {"role": None, "task": None, "prompt": prompt, "events": [[3600.0, end]], "commits": [], "patch": PATCH}


async def run_tests(folder: Path, *calls: dict[str, object]) -> ExecResult:
    lines: list[dict[str, object]] = [{"atomic_recording": 1, "command": []}, *calls]
    (folder / "login.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_login.py").write_text(TEST)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(folder)]
    return await execute(sys.executable, *command, str(folder), cwd=folder, timeout=120)


async def test_a_workflow_can_be_tested_with_a_recording(tmp_path: Path) -> None:
    result = await run_tests(tmp_path, call("Please write the login page."))
    assert result.exit_code == 0, result.stdout + result.stderr


async def test_unused_calls_fail_a_test_that_requires_all(tmp_path: Path) -> None:
    result = await run_tests(tmp_path, call("Write the login page."), call("Write the logout page."))
    assert result.exit_code == 1
    assert "1 calls of" in result.stdout
    assert "Write the logout page." in result.stdout


async def test_a_prompt_that_was_not_recorded_fails_the_test(tmp_path: Path) -> None:
    result = await run_tests(tmp_path, {**call("[atomic role=worker attempt=1]\nWrite it."), "role": "worker"})
    assert result.exit_code == 1
    assert "1 failed" in result.stdout
