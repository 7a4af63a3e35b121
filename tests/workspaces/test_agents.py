"""Real agents in a workspace: what they do stays there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from atomic.git import find_repository
from atomic.providers import SessionOptions, TurnEnded, require_provider
from atomic.testing.model_server import Call, ModelServer, claude_env, copilot_env, opencode_env
from atomic.workspaces import Author, Isolation, Workspace, find_contents, prepare_base
from tests.support.programs import FOLDER
from tests.support.repositories import git, new_repository
from tests.workspaces.kinds import KINDS, each

CACHE = FOLDER.parent / "cache"
Environment = Callable[[ModelServer, Path], dict[str, str]]
ENVIRONMENTS: dict[str, Environment] = {
    "claude": claude_env,
    "opencode": opencode_env,
    "copilot": lambda server, home: copilot_env(server, home, cache=CACHE),
}


@pytest.mark.ci
@pytest.mark.parametrize("isolation", each(KINDS))
@pytest.mark.parametrize("agent", sorted(ENVIRONMENTS))
async def test_an_agent_changes_files_only_in_its_workspace(tmp_path: Path, agent: str, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", {"a.txt": "one\n"})
    repository = find_repository(project)
    assert repository is not None
    folder = tmp_path / "workspaces"
    start = git(project, "rev-parse", "HEAD").strip()
    base = await prepare_base(repository, folder / "base", start, "atomic/x", await find_contents(repository))
    workspace = Workspace(base, folder / "1", isolation, hidden=[folder])
    await workspace.create(repository, start)
    shell = {"command": "echo work > work.txt; pwd; cat a.txt", "description": "write"}
    scripts = {"write": [Call({"Bash": shell, "bash": shell}), "Done: {{tool_result}}"]}
    async with ModelServer(scripts) as server, workspace.open() as view:
        env = {**ENVIRONMENTS[agent](server, tmp_path / "home"), **view.variables}
        options = SessionOptions(cwd=view.root, env=env, launcher=view.launcher)
        async with require_provider(agent).open(options) as session:
            *_, ended = [event async for event in session.send("@@write@@ Write the file.")]
    assert isinstance(ended, TurnEnded)
    assert f"{workspace.root}\none" in ended.text
    assert [path.name for path in project.iterdir() if path.name != ".git"] == ["a.txt"]
    captured = await workspace.capture(repository, "refs/atomic/run/1/1", Author("Ada", "a@example.org"), "Task 1")
    assert git(project, "show", f"{captured.result}:work.txt") == "work\n"


@pytest.mark.parametrize("isolation", each(KINDS))
async def test_a_recording_changes_files_only_in_its_workspace(tmp_path: Path, isolation: Isolation) -> None:
    project = new_repository(tmp_path / "project", {"a.txt": "one\n"})
    repository = find_repository(project)
    assert repository is not None
    folder = tmp_path / "workspaces"
    start = git(project, "rev-parse", "HEAD").strip()
    base = await prepare_base(repository, folder / "base", start, "atomic/x", await find_contents(repository))
    workspace = Workspace(base, folder / "1", isolation, hidden=[folder])
    await workspace.create(repository, start)
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
    recording = tmp_path / "recording.jsonl"
    end = {"type": "turn_ended", "reason": "done", "text": "Done."}
    call = {"role": None, "task": None, "prompt": "hello", "events": [[0, end]], "commits": [], "patch": patch}
    recording.write_text(f"{json.dumps({'atomic_recording': 1, 'command': []})}\n{json.dumps(call)}\n")
    async with workspace.open() as view:
        options = SessionOptions(cwd=view.root, launcher=view.launcher)
        async with require_provider(f"replay:{recording}").open(options) as session:
            *_, ended = [event async for event in session.send("hello")]
    assert isinstance(ended, TurnEnded)
    assert ended.error is None
    assert (project / "a.txt").read_text() == "one\n"
    captured = await workspace.capture(repository, "refs/atomic/run/1/1", Author("Ada", "a@example.org"), "Task 1")
    assert git(project, "show", f"{captured.result}:a.txt") == "two\n"
