"""The Python code of the documentation runs.

Blocks below `<!-- file: … -->` are examples, which tests/examples runs, and the program of the README is run by
tests/examples/test_readme.py. The other blocks are run here, with names for what a reader has in their place.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import pytest

from atomic import workflows
from atomic.entities import EntityRegistry
from atomic.graph import CompiledGraph
from atomic.providers import EndReason
from atomic.providers.turn import Turn
from atomic.workflows import SqliteJournal, State, node
from tests.docs.test_paths import DOCUMENTS, FENCE, ROOT
from tests.providers.scripted import ScriptedProvider, ScriptedSession
from tests.support.plain_install import CLAUDE, install_wheel
from tests.support.processes import coverage_variables
from tests.support.user import User

DOCS = ROOT / "docs"
PROGRAMS = {
    "approval": False,
    "saga": False,
    "invoice": False,
    "map_files": True,
    "typed_answer": True,
}  # with an agent
RECORDING = (
    '{"atomic_recording": 1, "command": []}\n'
    '{"match": "login page", "events": [[0, {"type": "turn_ended", "reason": "done", "text": "Written."}]], "patch": '
    '"diff --git a/login.html b/login.html\\nnew file mode 100644\\n--- /dev/null\\n+++ b/login.html\\n'
    '@@ -0,0 +1 @@\\n+login\\n"}\n'
)


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page that do not show a file."""
    text = re.sub(
        r"<!-- file: \S+ -->\n```python\n.*?^```", "", (DOCS / page).read_text(), flags=re.MULTILINE | re.DOTALL
    )
    return [code for language, code in FENCE.findall(text) if language == "python"]


async def run_block(code: str, names: dict[str, Any]) -> None:
    """Run a block that may have `await` at its top level."""
    body = textwrap.indent(code, "    ")
    exec(f"async def block():\n{body}\n", names)
    await names["block"]()


def test_every_page_with_code_is_run_here() -> None:
    pages = {str(page.relative_to(DOCS)) for page in DOCUMENTS if page.is_relative_to(DOCS)}
    found = {page for page in pages if blocks(page)}
    assert found == {
        "commands.md", "entities.md", "guide.md", "python.md", "recordings.md", "testing.md", "workflows.md"
    }  # fmt: skip


def test_the_guide_builds_its_graph_and_calls_methods_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    async def step(ctx: Any) -> None:
        pass

    def parse_plan(text: str = "") -> str:
        return text

    class Finding(msgspec.Struct):
        id: str = ""

    module = ModuleType("guide_of_atomic")  # a State finds its annotations in its module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    names |= {name: getattr(workflows, name) for name in workflows.__all__}
    names |= {"Annotated": Annotated, "Any": Any, "Finding": Finding, "parse_plan": parse_plan}
    for name in ("worker", "checker", "lint", "fixer", "praise", "report_failure"):
        names[name] = node(name, step)
    state, plan, reading, build, running, *_ = blocks("guide.md")
    state = state.replace("class ReviewState(State):", "class ReviewState(State):\n    done: bool = False")
    exec(
        state
        + plan
        + reading
        + build.replace('"setup", …', '"setup", parse_plan').replace('"test", …', '"test", parse_plan'),
        names,
    )
    assert isinstance(names["review"], CompiledGraph)
    assert isinstance(names["reading"].compile(), CompiledGraph)
    calls = [one for one in ast.walk(ast.parse(running.replace("…\n", "...\n"))) if isinstance(one, ast.Call)]
    methods = [one for one in calls if isinstance(one.func, ast.Attribute)]
    assert len(methods) > 4
    for call in methods:
        assert isinstance(call.func, ast.Attribute)
        owner = SqliteJournal if ast.unparse(call.func.value) == "journal" else CompiledGraph
        method = inspect.signature(getattr(owner, call.func.attr))
        method.bind(None, *call.args, **{str(one.arg): None for one in call.keywords})


async def test_the_guide_opens_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(session: ScriptedSession, turn: Turn) -> None:
        turn.end(EndReason.DONE, text=f"did {session.prompts[-1]}")

    class Prompted(State):
        prompt: str = ""

    monkeypatch.chdir(tmp_path)
    [code] = [block for block in blocks("guide.md") if "async with agents(" in block]
    names: dict[str, Any] = {"agents": workflows.agents, "provider": ScriptedProvider(answer)}
    names["review"] = workflows.graph(Prompted).agent("ask", lambda state: state.prompt).compile()
    code = code.replace('"claude"', "provider")
    await run_block(f"{code}\nglobals().update(locals())", names)
    assert names["result"].state.outputs == {"ask": "did …"}
    assert names["advice"] == "did What should I read first?"
    assert (tmp_path / "runs.db").exists()


async def test_the_workflow_files_can_be_loaded(tmp_path: Path) -> None:
    user = User(tmp_path)
    folder = user.home / ".atomic" / "workflows"
    folder.mkdir(parents=True)
    whole, function, convert, patched, parts, write, merge = blocks("workflows.md")
    ast.parse(patched)
    (folder / "whole.py").write_text(whole)
    (folder / "parts.py").write_text(parts)
    (folder / "release.py").write_text(function)
    (folder / "pages.py").write_text(merge)
    for code in (convert, write):
        exec(code, {})
    checked = await user.atomic("workflows", "check")
    assert (checked.exit_code, checked.stdout) == (0, ""), checked.stdout


def test_the_program_of_the_page_about_python_prints_what_it_says(tmp_path: Path) -> None:
    program, _, look = blocks("python.md")
    (tmp_path / "program.py").write_text(program + look)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    said = [line.partition("  # ")[2] for line in program.splitlines() if "print(" in line and "  # " in line]
    assert lines[:4] == ["fetching Rome", "fetching Oslo", *said]
    assert lines[4] == "today report completed"
    assert lines[-1] == "{'fetch': 4}"


def test_a_signal_of_the_page_about_python_reaches_the_run(tmp_path: Path) -> None:
    _, send, _ = blocks("python.md")
    shutil.copy(ROOT / "examples" / "python" / "invoice.py", tmp_path)
    begin = "import asyncio\nfrom invoice import invoice\nfrom atomic.workflows import SqliteJournal\n"
    wait = 'asyncio.run(invoice.run("7", journal="invoices.db", execution_id="invoice-7"))\n'
    resume = 'print(asyncio.run(invoice.resume("invoices.db", "invoice-7")).result)\n'
    (tmp_path / "program.py").write_text(begin + wait + send + resume)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert (done.stdout, done.stderr) == ("paid\n", "")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ci if agent else ()) for name, agent in PROGRAMS.items()]
)
def test_the_programs_of_the_page_about_python_pass_their_tests(tmp_path: Path, name: str) -> None:
    for file in (f"{name}.py", f"test_{name}.py"):
        shutil.copy(ROOT / "examples" / "python" / file, tmp_path)
        assert f"<!-- file: examples/python/{file} -->" in (DOCS / "python.md").read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    env = {"PATH": f"{ROOT / '.programs' / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path), **coverage_variables()}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_recordings_and_registries_are_used_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATOMIC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ATOMIC_REPLAY_SPEED", "max")
    for name in ("project", "copy-of-project"):
        (tmp_path / name).mkdir()
    (tmp_path / "claude.jsonl").write_text(RECORDING)
    [code] = blocks("recordings.md")
    await run_block(code.replace('"claude"', '"replay:claude.jsonl"'), {})
    assert (tmp_path / "copy-of-project" / "login.html").read_text() == "login\n"
    [code] = blocks("entities.md")
    await run_block(code, {})
    [code] = blocks("commands.md")
    names: dict[str, Any] = {"entities": EntityRegistry.load()}
    await run_block("\n".join(line for line in code.splitlines() if not line.startswith("await dispatch")), names)


def run_pytest(folder: Path, code: str, **env: str) -> None:
    (folder / "test_page.py").write_text(code)
    (folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\nasyncio_mode = "auto"\n')
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"]
    known = {"PATH": f"{ROOT / '.programs' / 'bin'}:/usr/bin:/bin", "HOME": str(folder), **coverage_variables(), **env}
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_test_with_a_recording_passes(tmp_path: Path) -> None:
    _, code = blocks("testing.md")
    setup, test = code.split("# test_login.py\n")
    (tmp_path / "conftest.py").write_text(setup)
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "login.jsonl").write_text(RECORDING)
    run_pytest(tmp_path, test)


@pytest.mark.ci
def test_the_test_with_a_real_agent_passes_when_it_is_pasted(tmp_path: Path) -> None:
    """Run it in an empty folder, with what the page installs in an environment of its own, and `claude` on PATH."""
    code, _ = blocks("testing.md")
    programs = install_wheel(tmp_path / "installed", "pytest")
    project = tmp_path / "project"
    (tmp_path / "bin").mkdir()
    project.mkdir()
    (tmp_path / "bin" / "claude").symlink_to(CLAUDE)
    (project / "test_hello.py").write_text(code)
    env = {"PATH": f"{programs}:{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["pytest"], cwd=project, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_tutorials_test_passes_in_a_project(tmp_path: Path) -> None:
    """Run the files of `examples/tests` where the tutorial puts them."""
    shutil.copytree(ROOT / "examples" / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    workflow = tmp_path / ".atomic" / "workflows" / "changelog.py"
    workflow.parent.mkdir(parents=True)
    shutil.copy(ROOT / "examples" / "workflows" / "changelog.py", workflow)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "tests"]
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path), **coverage_variables()}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_program_for_users_of_langgraph_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "from_langgraph.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "completed ['Tea, draft 1', 'Tea, draft 2']"
