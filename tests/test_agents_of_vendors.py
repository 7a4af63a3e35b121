"""`agents(…)` and `ModelServer.connect` with the real Claude Code, OpenCode and Copilot on the scripted model."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from atomic.testing import Call, ModelServer, Stall, claude_env
from atomic.testing.conformance.case import descendants
from atomic.testing.model_server import ModelServerError, NotRunningError
from atomic.workflows import (
    Bridge,
    CompiledGraph,
    Node,
    RunStatus,
    State,
    SubagentRequest,
    WorkflowRuntime,
    agents,
    graph,
    parallel_subagent_node,
)
from tests.support.processes import coverage_variables, is_alive
from tests.support.programs import CACHE, path_with_more_programs
from tests.support.repositories import git, new_repository
from tests.support.waits import eventually

SHELL = {"command": "echo hello > hello.txt", "description": "write"}
WRITE = [Call({"Bash": SHELL, "bash": SHELL}), "Done: {{tool_result}}"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a home folder and a project of its own."""
    for folder in ("home", "temporary", "project"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COPILOT_CACHE_HOME", str(CACHE / "copilot"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def programs() -> Callable[[], set[int]]:
    """Return a function that returns the programs that the test has started and that still run."""
    before = set(descendants(os.getpid()))  # of other tests, such as those of multiprocessing
    return lambda: set(descendants(os.getpid())) - before


@pytest.mark.ci
@pytest.mark.parametrize("name", ["claude", "opencode", "copilot"])
async def test_a_connected_agent_works_on_the_scripted_model(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch, programs: Callable[[], set[int]]
) -> None:
    await _works_on_the_scripted_model(name, project, monkeypatch)
    assert programs() == set()


@pytest.mark.full
@pytest.mark.parametrize("name", ["codex", "gemini"])
async def test_agents_over_acp_can_be_connected_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_with_more_programs())
    async with ModelServer({"hello": "Hello there."}) as server:
        result = await graph(State).agent("hello", "@@hello@@ Hi.").compile().run(agent=server.connect(name))
    assert result.error is None
    assert result.state.outputs["hello"] == "Hello there."


async def _works_on_the_scripted_model(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a turn that writes a file, and check that nothing of the user was used."""
    for variable in ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_MODEL", "COPILOT_MODEL"):
        monkeypatch.setenv(variable, "of-the-user")
    flow = graph(State).agent("write", "@@write@@ Write the file.").compile()
    async with ModelServer({"write": WRITE}) as server:
        result = await flow.run(agent=server.connect(name))
        assert len(list(Path(tempfile.gettempdir()).glob("atomic-home-*"))) == 1
    assert result.error is None
    assert result.state.outputs["write"].startswith("Done:")
    assert (project / "hello.txt").read_text() == "hello\n"
    assert [call.script for call in server.calls if call.script] == ["write", "write"]
    assert not server.other
    assert not any(b"of-the-user" in call.body or "of-the-user" in str(call.headers) for call in server.calls)
    assert os.listdir(tempfile.gettempdir()) == []


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("claude", "claude"),
        ("opencode", "opencode"),
        ("copilot", "copilot"),
        ("codex", "codex-acp"),
        ("gemini", "gemini"),
    ],
)
async def test_a_connected_agent_gets_no_variable_of_the_user(
    name: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("EDITOR", "ANTHROPIC_MODEL", "OPENCODE_CONFIG", "COPILOT_MODEL", "CODEX_MODE", "GEMINI_SANDBOX"):
        monkeypatch.setenv(variable, "of-the-user")
    monkeypatch.delenv(f"ATOMIC_{name.upper()}_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / program).write_text(f'#!/bin/sh\nenv > "{tmp_path}/variables"\necho 99.0.0\n')
    (tmp_path / "bin" / program).chmod(0o700)
    async with ModelServer({}) as server:
        await server.connect(name).check()
    variables = (tmp_path / "variables").read_text()
    assert "atomic-home-" in variables
    assert "of-the-user" not in variables


@pytest.mark.ci
@pytest.mark.parametrize("name", ["claude", "opencode", "copilot"])
async def test_programs_end_with_their_run_with_a_cancellation_and_with_the_agents(
    name: str, programs: Callable[[], set[int]]
) -> None:
    talk = graph(State).agent("talk", "@@hello@@ Hi.", session="kept").compile()
    slow = graph(State).agent("slow", "@@slow@@ Go.").compile()
    async with ModelServer({"hello": "Hello.", "slow": [["A beginning", Stall()]], "left": Stall()}) as server:
        async with agents(server.connect(name)) as runtime:
            assert (await talk.run(deps=runtime)).status is RunStatus.COMPLETED
            assert programs() == set()
            run = asyncio.create_task(slow.run(deps=runtime))
            await server.wait_for(lambda call: call.script == "slow", timeout=600)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert programs() == set()
            left = asyncio.create_task(runtime.turn("@@left@@ Go."))
            await server.wait_for(lambda call: call.script == "left", timeout=600)
        assert programs() == set()
        with pytest.raises(asyncio.CancelledError):
            await left


@pytest.mark.ci
async def test_a_bridge_to_a_connected_agent_is_enough_for_sub_agents(project: Path) -> None:
    both: Node[State, WorkflowRuntime] = parallel_subagent_node(
        "both", agents=lambda s: [SubagentRequest("reviewer", f"@@part{n}@@") for n in (1, 2)]
    )
    async with ModelServer({"part1": "One.", "part2": "Two."}) as server:
        provider = server.connect("claude")
        async with agents(provider) as runtime:
            bridge = Bridge(provider, entities=runtime.entities)
        result = await graph(State).then(both).compile().run(deps=bridge)
    assert result.error is None
    assert [one["text"] for one in result.state.outputs["both"]] == ["One.", "Two."]


@pytest.mark.ci
async def test_an_agent_by_name_uses_the_variables_that_are_given(tmp_path: Path) -> None:
    async with ModelServer({"hello": "Hello."}) as server:
        env = claude_env(server, tmp_path / "home")
        async with agents("claude", env=env, model="scripted-2") as runtime:
            assert await runtime.turn("@@hello@@ Say hello.") == "Hello."
            assert runtime.spent.input_tokens > 0
    assert {call.model for call in server.calls if call.script} == {"scripted-2"}


@pytest.mark.ci
async def test_isolated_nodes_are_merged_into_a_branch_of_the_run(project: Path, tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repository", {"README.md": "hello\n"})
    flow = (
        graph(State)
        .agent("write", "@@write@@ Write the file.", isolate=True)
        .merge("merge", results=["write"], check="test -f hello.txt")
        .compile()
    )
    async with ModelServer({"write": WRITE}) as server, agents(server.connect("claude"), cwd=repository) as runtime:
        result = await flow.run(deps=runtime, journal=tmp_path / "runs.db")
    assert result.error is None
    (branch,) = git(repository, "branch", "--list", "atomic/*", "--format=%(refname:short)").split()
    assert git(repository, "ls-tree", "-r", "--name-only", branch).split() == ["README.md", "hello.txt"]
    assert git(repository, "status", "--porcelain") == ""
    assert list((tmp_path / "home" / ".atomic" / "workspaces").glob("*-*")) == []


@pytest.mark.ci
async def test_a_cap_counts_what_a_killed_process_has_spent(tmp_path: Path) -> None:
    flow = graph(State).agent("one", "@@one@@").agent("two", "@@two@@").compile(name="flow")
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from atomic.workflows import State, agents, graph\n"
        'flow = graph(State).agent("one", "@@one@@").agent("two", "@@two@@").compile(name="flow")\n'
        "async def main():\n"
        '    async with agents("claude") as runtime:\n'
        '        await flow.run(deps=runtime, journal="runs.db", execution_id="mine")\n'
        "asyncio.run(main())\n"
    )
    async with ModelServer({"one": "One.", "two": [["A beginning", Stall()], "Two."]}) as server:
        env = {**claude_env(server, tmp_path / "home"), **coverage_variables()}
        with subprocess.Popen([sys.executable, program], cwd=tmp_path, env=env) as child:
            await server.wait_for(lambda call: call.script == "two", timeout=600)
            programs = descendants(child.pid)
            assert programs
            child.send_signal(signal.SIGKILL)
        await eventually(lambda: not any(is_alive(pid) for pid in programs))
        async with agents(server.connect("claude"), max_tokens=1) as runtime:
            paused = await flow.resume(tmp_path / "runs.db", "mine", deps=runtime)
            assert runtime.spent.tokens == 0
        assert (paused.status, paused.codes) == (RunStatus.PAUSED, ("max_tokens",))
        assert "spent (to continue: resume with agents(…, max_tokens=" in str(paused.error)


@pytest.mark.ci
async def test_an_isolated_node_continues_in_its_workspace_after_a_kill(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "repository", {"README.md": "hello\n"})
    made = (
        'graph(State).agent("write", "@@write@@ Write.", isolate=True)'
        '.merge("merge", results=["write"]).compile(name="flow")'
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\n"
        "from atomic.workflows import State, agents, graph\n"
        f"flow = {made}\n"
        "async def main():\n"
        '    async with agents("claude", cwd="repository") as runtime:\n'
        '        await flow.run(deps=runtime, journal="runs.db", execution_id="mine")\n'
        "asyncio.run(main())\n"
    )
    flow: CompiledGraph[State] = eval(made, {"graph": graph, "State": State})
    async with ModelServer({"write": [WRITE[0], ["A beginning", Stall()]]}) as server:
        env = {**claude_env(server, tmp_path / "home"), **coverage_variables()}
        with subprocess.Popen([sys.executable, program], cwd=tmp_path, env=env) as child:
            await server.wait_for(lambda call: call.script == "write" and call.turn == 1, timeout=600)
            child.send_signal(signal.SIGKILL)
    async with ModelServer({"write": "Done."}) as server, agents(server.connect("claude"), cwd=repository) as runtime:
        result = await flow.resume(tmp_path / "runs.db", "mine", deps=runtime)
    assert result.error is None
    (branch,) = git(repository, "branch", "--list", "atomic/*", "--format=%(refname:short)").split()
    assert git(repository, "ls-tree", "-r", "--name-only", branch).split() == ["README.md", "hello.txt"]


async def test_a_server_connects_only_known_agents_and_only_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ModelServer({})
    with pytest.raises(NotRunningError):
        server.connect("claude")
    async with server:
        with pytest.raises(
            ModelServerError, match=r'^No scripted model for "cluade" \(did you mean "claude"\?\); there'
        ):
            server.connect("cluade")
        monkeypatch.setenv("PATH", os.devnull)
        monkeypatch.delenv("ATOMIC_OPENCODE_PATH")
        missing = r"^opencode: the program 'opencode' is not installed \(npm install -g opencode-ai\)$"
        with pytest.raises(Exception, match=missing):
            server.connect("opencode")
    await asyncio.sleep(0)
    assert os.listdir(tempfile.gettempdir()) == []
