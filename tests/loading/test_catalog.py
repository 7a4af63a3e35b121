"""Workflow files: found without running them, loaded from the bytes that were read."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic import __version__
from atomic.base.untrusted_files import Root
from atomic.loading.catalog import WorkflowCatalog
from atomic.workflows import RunStatus, UntrustedError, WorkflowLoadError, WorkflowNotFoundError, WorkflowStateParams
from atomic.workflows.definition import Capabilities
from tests.loading.projects import HEAD, SAY, S, World, config_of
from tests.runs.small_runtime import Runtime


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def ran(catalog: WorkflowCatalog, name: str, prompt: str = "p") -> Any:
    loaded = catalog.definition(name).load()
    assert loaded.graph is not None
    result = await loaded.graph.run(loaded.create_state(WorkflowStateParams(prompt=prompt)))
    assert result.status is RunStatus.COMPLETED
    return result.state


# Finding


def test_a_project_workflow_overrides_the_users_in_any_case(world: World) -> None:
    mine = world.flow("Review", "", user=True)
    theirs = world.flow("review", "description = 'theirs'\n")
    other = world.flow("other", "", user=True)
    catalog = world.catalog
    assert [(one.name, one.source, one.path) for one in catalog.all()] == [
        ("other", "user", other),
        ("review", "project", theirs),
    ]
    for name in ("review", "REVIEW", "Review"):
        assert catalog.definition(name).description == "theirs"
    assert [one.path for one in catalog.hidden] == [mine]
    assert catalog.problems == ()


def test_an_alias_of_the_project_reserves_its_name(world: World) -> None:
    world.flow("b", "", user=True)
    world.flow("a", "aliases = ['B', 'c']\n")
    world.flow("d", "aliases = ['c']\n", user=True)
    catalog = world.catalog
    assert [one.name for one in catalog.all()] == ["a", "d"]
    assert [catalog.definition(name).name for name in ("b", "c", "A")] == ["a", "a", "a"]


def test_a_name_beats_an_alias_on_the_same_level(world: World) -> None:
    world.flow("a", "aliases = ['b']\n")
    world.flow("b", "")
    catalog = world.catalog
    assert catalog.definition("b").name == "b"
    (problem,) = catalog.problems
    assert problem.path.name == "a.py"
    assert problem.reason == 'the alias "b" is taken by "b"'


def test_two_files_with_one_name_are_reported(world: World) -> None:
    world.flow("a", "name = 'x'\n")
    world.flow("b", "name = 'X'\n")
    catalog = world.catalog
    assert [one.path and one.path.name for one in catalog.all()] == ["a.py"]
    assert [(one.path.name, one.reason) for one in catalog.problems] == [("b.py", 'the name "X" is taken by a.py')]


def test_an_unknown_name_suggests_the_nearest(world: World) -> None:
    world.flow("review", "")
    with pytest.raises(WorkflowNotFoundError, match=r'Workflow not found: "revew" \(did you mean "review"\?\)'):
        world.catalog.definition("revew")
    assert world.catalog.find("revew") is None


def test_helper_modules_are_not_workflows(world: World) -> None:
    world.flow("_helpers", "")
    world.flow("lib/__init__", "")
    world.flow("lib/more", "")
    world.write("workflows/notes.txt", "")
    assert world.catalog.all() == []
    assert len(world.look().items) == 3


def test_workflows_are_found_without_running_code(world: World, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    world.flow("evil", f"open({str(canary)!r}, 'w').close()\n")
    world.tool("evil", f"open({str(canary)!r}, 'w').close()\n")
    catalog = world.catalog
    assert [one.name for one in catalog.all()] == ["evil"]
    with pytest.raises(UntrustedError) as caught:
        catalog.definition("evil").load()
    assert caught.value.exit_code == 4
    assert caught.value.hash == catalog.snapshot.hash
    assert not canary.exists()
    with pytest.raises(UntrustedError):
        catalog.require("evil")
    world.trust().definition("evil").load()
    assert canary.exists()


def test_the_users_own_files_need_no_trust(world: World) -> None:
    world.flow("mine", SAY, user=True)
    world.flow("theirs", SAY)
    catalog = world.catalog
    assert catalog.definition("mine").load().graph is not None
    assert [catalog.is_trusted(catalog.definition(name)) for name in ("mine", "theirs")] == [True, False]


def test_pipes_huge_files_and_links_out_of_the_project_are_reported(world: World, tmp_path: Path) -> None:
    world.flow("good", SAY)
    folder = world.project / ".atomic" / "workflows"
    os.mkfifo(folder / "pipe.py")
    (folder / "huge.py").write_bytes(b"# " + b"x" * 10 * 1024 * 1024)
    (folder / "device.py").symlink_to("/dev/zero")
    (tmp_path / "outside.py").write_text("name = 'outside'\n")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "folder.py").mkdir()
    catalog = world.catalog
    assert [one.name for one in catalog.all()] == ["good"]
    assert {problem.path.name: problem.reason for problem in catalog.problems} == {
        "pipe.py": "this is not a regular file",
        "huge.py": "this file is longer than 1,048,576 bytes",
        "device.py": "a link leads out of the folder: it is not followed",
        "link.py": "a link leads out of the folder: it is not followed",
    }


@pytest.mark.parametrize("below", ["", "workflows"])
def test_a_folder_that_is_a_link_out_of_the_project_is_not_followed(world: World, tmp_path: Path, below: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "workflows").mkdir(parents=True)
    (elsewhere / "workflows" / "evil.py").write_text("")
    (elsewhere / "evil.py").write_text("")
    link = world.project / ".atomic" / below
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(elsewhere)
    catalog = world.catalog
    assert catalog.all() == []
    assert {problem.reason for problem in catalog.problems} == {"a link leads out of the folder: it is not followed"}


def test_files_of_other_users_are_not_read(world: World) -> None:
    file = world.flow("alien", SAY)
    somebody_else = file.stat().st_uid + 1
    for shared in (True, False):
        found = Root(file.parent, (somebody_else,), shared=shared).read("alien.py")
        assert found is not None
        assert (found.data, found.reason) == (b"", "it belongs to another user: it is not read")
    owned = Root.of_project(file.parent).read("alien.py")
    assert owned is not None
    assert owned.data == file.read_bytes()


def test_a_user_file_that_others_may_write_is_not_read(world: World) -> None:
    world.flow("loose", SAY, user=True).chmod(0o666)
    catalog = world.catalog
    assert catalog.all() == []
    assert [one.reason for one in catalog.problems] == ["every user may write it: it is not read"]


def test_a_folder_with_too_many_files_is_not_read_further(world: World) -> None:
    folder = world.flow("a0", "").parent
    for number in range(1, 2100):
        (folder / f"a{number}.py").touch()
    assert any("2,000" in problem.reason for problem in world.catalog.problems)


def test_a_file_name_of_any_bytes_can_be_reported(world: World) -> None:
    folder = world.flow("good", "").parent
    (folder / os.fsdecode(b"bad\xff.py")).write_text("name = 'ok'\n")
    catalog = world.catalog
    assert [one.name for one in catalog.all()] == ["good", "ok"]
    msgspec.json.encode([str(one.path) for one in catalog.all()])
    assert world.trust().definition("ok").load().graph is None


# Loading


async def test_a_file_with_a_graph_config_runs(world: World) -> None:
    world.flow(
        "config",
        HEAD
        + """
class S(State):
    prompt: str = ""
def shout(state):
    return state.prompt.upper()
graph_config = GraphConfig(
    start_node="shout", state=S, nodes=[tool_node("shout", run=shout)], edges=[Edge("shout", END)]
)
""",
    )
    state = await ran(world.trust(), "config", "hello")
    assert state.outputs == {"shout": "HELLO"}


async def test_a_file_with_a_workflow_runs_under_its_own_name(world: World) -> None:
    world.flow("say", "from __future__ import annotations\n" + SAY)
    catalog = world.trust()
    assert (await ran(catalog, "say")).outputs == {"say": "hi"}
    assert catalog.require("SAY").name == "say"
    assert catalog.require("say") is catalog.require("say")


def test_a_file_without_a_workflow_sends_its_prompt_to_the_chat(world: World) -> None:
    world.flow("talk", "description = 'x'\n")
    catalog = world.trust()
    assert catalog.definition("talk").load().graph is None
    with pytest.raises(WorkflowLoadError, match="no graph"):
        catalog.require("talk")


def test_a_builder_that_was_not_compiled_is_compiled(world: World) -> None:
    world.flow("x", SAY.replace(".compile()", ""))
    assert world.reasons("x") == []


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x = 1\nimport nonsense_that_is_not_there\n", 2, "No module named 'nonsense_that_is_not_there'"),
        ("x = 1\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("def f():\n    raise KeyError('k')\nf()\n", 2, "KeyError: 'k'"),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit: 0"),
        ("x = 1\nworkflow = 3\n", 2, "workflow is an int, not a compiled graph: end it with .compile()"),
        ("x = 1\ngraph_config = {}\n", 2, "graph_config is a dict, not a GraphConfig"),
        (SAY + "graph_config = 1\n", 6, "the file has both graph_config and workflow: remove one of them"),
        (SAY + "migrate_state = 3\n", 7, "migrate_state is an int, not a function"),
        ("def f(): return f()\nf()\n", 1, "RecursionError: "),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_line(world: World, text: str, line: int, reason: str) -> None:
    world.flow("bad", text)
    ((found, said),) = world.reasons("bad")
    assert found == line
    assert reason in said


def test_a_mistake_in_a_helper_is_reported_with_the_helpers_line(world: World) -> None:
    world.flow("main", "import _helper\n")
    world.flow("_helper", "x = 1\ny = z\n")
    with pytest.raises(WorkflowLoadError) as caught:
        world.trust().definition("main").load()
    (problem,) = caught.value.problems
    assert (problem.path.name, problem.line) == ("_helper.py", 2)
    world.flow("_helper", "x = (\n")
    with pytest.raises(WorkflowLoadError) as caught:
        world.trust().definition("main").load()
    assert caught.value.problems[0].path.name == "_helper.py"


PROBLEMS = {
    "unknown start": ("GraphConfig(start_node='x', state=S, nodes=[A], edges=[])", "x"),
    "edge to an unknown node": ("GraphConfig(start_node='a', state=S, nodes=[A], edges=[Edge('a', 'y')])", "y"),
    "duplicate id": ("GraphConfig(start_node='a', state=S, nodes=[A, A], edges=[])", "duplicate"),
    "unreachable": ("GraphConfig(start_node='a', state=S, nodes=[A, B], edges=[])", "b"),
    "cycle without a bound": (
        "GraphConfig(start_node='a', state=S, nodes=[A, B], edges=[Edge('a', 'b'), Edge('b', 'a')])",
        "cycle",
    ),
    "merge strategy": ("graph(S).parallel({'x': A, 'y': B}, strategy='most').compile()", "most"),
    "no way on": ("graph(S).decision('d', routes=[(lambda s: s.prompt, 'nowhere')]).compile()", "nowhere"),
}


@pytest.mark.parametrize("kind", PROBLEMS)
def test_each_problem_of_a_graph_is_reported_with_a_line(world: World, kind: str) -> None:
    text, word = PROBLEMS[kind]
    name = "graph_config" if text.startswith("GraphConfig") else "workflow"
    nodes = "A = tool_node('a', run=lambda: 1)\nB = tool_node('b', run=lambda: 2)\n"
    world.flow("bad", f"{S}{nodes}{name} = {text}\n")
    found = world.reasons("bad")
    assert any(word in reason for _, reason in found)
    assert all(line > 5 for line, _ in found)


def test_all_problems_of_a_graph_are_reported_together_at_their_nodes(world: World) -> None:
    world.flow(
        "bad",
        S
        + "nodes = [\n    tool_node('a', run=lambda: 1),\n    tool_node('b', run=lambda: 1, timeout=-1),\n"
        + "    tool_node('c', run=lambda: 1),\n]\n"
        + "graph_config = GraphConfig(start_node='a', state=S, nodes=nodes, edges=[Edge('a', 'x')])\n",
    )
    found = world.reasons("bad")
    assert {line for line, reason in found if reason.startswith("b: timeout")} == {8}
    assert {line for line, reason in found if reason.startswith("c: ")} == {9}
    assert len(found) >= 3


def test_a_workflow_for_a_newer_atomic_is_refused_with_both_versions(world: World) -> None:
    world.flow("future", "x = 1\nmin_sdk_version = '99.1'\nraise SystemExit\n")
    definition = world.trust().definition("future")
    assert definition.refused
    assert definition.problem is not None
    assert definition.problem.endswith(f".py:2: it needs Atomic 99.1 or newer, and this is {__version__}")
    with pytest.raises(WorkflowLoadError, match=r"99\.1") as caught:
        definition.load()
    assert caught.value.exit_code == 2


def test_a_syntax_error_is_refused_with_its_line_and_the_others_load(world: World) -> None:
    world.flow("broken", "x = 1\ndef (\n")
    world.flow("good", SAY)
    catalog = world.trust()
    assert [(one.line, one.path.name) for one in catalog.problems] == [(2, "broken.py")]
    with pytest.raises(WorkflowLoadError, match=r"broken\.py:2: this is not Python"):
        catalog.definition("broken").load()
    assert catalog.definition("good").load().graph is not None


def test_output_of_a_file_that_loads_does_not_reach_standard_output(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.flow("loud", "print('loud')\n" + SAY)
    world.trust().definition("loud").load()
    assert capsys.readouterr() == ("", "loud\n")


def test_state_is_made_from_the_prompt_or_by_the_file(world: World) -> None:
    world.flow("plain", SAY)
    world.flow("none", "from atomic.workflows import *\nworkflow = graph(State).tool('a', run=lambda: 1).compile()\n")
    world.flow("own", SAY + "def create_state(params): return S(prompt=params.prompt + params.config['x'])\n")
    catalog = world.trust()
    params = WorkflowStateParams(prompt="p", config={"x": "!"})
    made = [catalog.definition(name).load().create_state(params) for name in ("plain", "none")]
    assert made == [{"prompt": "p"}, {}]
    own: Any = catalog.definition("own").load().create_state(params)
    assert own.prompt == "p!"


def test_versions_of_the_state_come_from_the_file_or_the_graph(world: World) -> None:
    world.flow("file", SAY + "state_version = 3\ndef migrate_state(old, from_version): return old\n")
    world.flow("graph", SAY.replace(".compile()", ".compile(state_version=2)"))
    catalog = world.trust()
    assert catalog.require("file").options.state_version == 3
    assert catalog.definition("file").load().migrate_state is not None
    assert catalog.require("graph").options.state_version == 2


def test_renamed_and_removed_come_from_the_file_or_the_graph(world: World) -> None:
    said = "renamed = {'old': 'say'}\nremoved = {'gone'}\n"
    world.flow("file", SAY + said)
    world.flow("graph", SAY.replace(".compile()", ".compile(renamed={'old': 'say'}, removed={'gone'})"))
    world.flow("both", SAY.replace(".compile()", ".compile(renamed={'older': 'say'})") + said)
    world.flow("wrong", SAY + "removed = {'say'}\n")
    catalog = world.trust()
    for name in ("file", "graph"):
        program = catalog.require(name).program
        assert (program.renamed, program.removed) == ({"old": "say"}, {"gone"})
    with pytest.raises(WorkflowLoadError, match="renamed is given to compile and in the file"):
        catalog.require("both")
    with pytest.raises(WorkflowLoadError, match="removed: 'say' is still in the graph"):
        catalog.require("wrong")


def test_settings_override_the_default_config_key_by_key(world: World) -> None:
    world.flow("a", "default_config = {'depth': 2, 'deep': {'x': 1, 'y': 2}, 'list': [1]}\n")
    said = {"A": {"depth": 3, "deep": {"y": 5}, "list": [2], "more": True}, "b": {"depth": 9}}
    assert config_of(world, "a", said) == {"depth": 3, "deep": {"x": 1, "y": 5}, "list": [2], "more": True}
    assert config_of(world, "a", {}) == {"depth": 2, "deep": {"x": 1, "y": 2}, "list": [1]}


@pytest.mark.parametrize(
    ("chain", "fields", "expected"),
    [
        (".tool('a', run=lambda: 1)", "", Capabilities()),
        (".agent('a', 'x')", "", Capabilities(subagents=True)),
        (".loop(graph(T).if_(lambda s: 1, then=graph(T).skill('x')), until=lambda s: 1)", "", Capabilities(True)),
        (".map('m', over=lambda s: [], node=graph(T).ask_user('q', 'ok?'))", "", Capabilities(questions=True)),
        (".parallel({'x': graph(T).wait('go on?')})", "", Capabilities(questions=True)),
        (".subgraph('s', graph(T).subagent('a', agent='b', task='c').compile())", "", Capabilities(subagents=True)),
        (".tool('a', run=lambda: 1)", "    tasks: list[WorkflowTask] = []\n", Capabilities(task_list=True)),
        (".tool('a', run=lambda: 1)", "    tasks: list[str] = []\n", Capabilities()),
    ],
)
def test_the_capabilities_of_a_workflow_follow_from_its_nodes(
    world: World, chain: str, fields: str, expected: Capabilities
) -> None:
    world.flow("x", f"{HEAD}class T(State):\n    prompt: str = ''\n{fields}workflow = graph(T){chain}.compile()\n")
    assert world.trust().definition("x").load().capabilities == expected


def test_a_workflow_has_the_capabilities_of_workflows_it_calls_by_name(world: World) -> None:
    world.flow("asks", f"{S}workflow = graph(S).ask_user('q', 'ok?').compile()\n", user=True)
    tasks = "class T(State):\n    tasks: list[WorkflowTask] = []\n"
    world.flow("plans", f"{HEAD}{tasks}workflow = graph(T).agent('a', 'x').subgraph('s', 'ASKS').compile()\n")
    world.flow("broken", "workflow = 1\n")
    world.flow("outer", f"{S}workflow = graph(S).subgraph('p', 'plans').subgraph('b', 'broken').compile()\n")
    world.flow("lost", f"{S}workflow = graph(S).subgraph('n', 'nobody').subgraph('b', 'broken').compile()\n")
    catalog = world.trust()
    assert catalog.definition("outer").load().capabilities == Capabilities(True, True, True)
    assert catalog.definition("asks").load().capabilities == Capabilities(questions=True)
    assert catalog.definition("lost").load().capabilities == Capabilities()


# Circles


def calls(name: str) -> str:
    return f"{S}\nworkflow = (\n    graph(S)\n    .subgraph('to-{name}', '{name}')\n    .compile()\n)\n"


def test_two_workflows_that_call_each_other_are_reported_as_a_cycle(world: World) -> None:
    world.flow("a", calls("B"))
    world.flow("b", calls("a"))
    world.flow("c", calls("a"))
    assert world.reasons("a") == [(9, "workflows call each other in a circle: a -> b -> a")]
    assert world.reasons("b") == [(9, "workflows call each other in a circle: b -> a -> b")]
    assert world.reasons("c") == [(9, "workflows call each other in a circle: a -> b -> a")]


def test_a_workflow_that_calls_itself_is_reported_as_a_cycle(world: World) -> None:
    world.flow("a", calls("a"))
    assert world.reasons("a") == [(9, "workflows call each other in a circle: a -> a")]


def test_workflows_that_call_the_same_one_are_not_a_cycle(world: World) -> None:
    world.flow("end", SAY)
    for number in range(30):
        after = "end" if number == 29 else f"n{number + 1}"
        world.flow(
            f"n{number}", f"{S}workflow = graph(S).subgraph('x', '{after}').subgraph('y', '{after}').compile()\n"
        )
    assert world.reasons("n0") == []


async def test_a_workflow_by_name_runs_through_the_catalog(world: World) -> None:
    world.flow("inner", SAY, user=True)
    world.flow("outer", calls("inner"))
    catalog = world.trust()
    graph = catalog.require("outer")
    runtime = Runtime()
    runtime.workflows = catalog  # pyright: ignore[reportAttributeAccessIssue]  # the small one has a plain dictionary
    result = await graph.run(deps=runtime)
    assert result.status is RunStatus.COMPLETED
    assert result.state.outputs["to-inner"]["outputs"] == {"say": "hi"}


# The bytes that run


async def test_the_bytes_that_run_are_the_bytes_that_were_read(world: World, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = f"open({str(canary)!r}, 'w')\n"
    file = world.flow("main", f"{S}import _helper\nworkflow = graph(S).tool('a', run=_helper.late).compile()\n")
    helper = world.flow("_helper", "def late():\n    import _late\n    return _late.word\n")
    late = world.flow("_late", "word = 'good'\n")
    catalog = world.trust()
    definition = catalog.definition("main")
    for swapped in (file, helper, late):
        swapped.write_text(evil)
    graph = definition.load().graph
    assert graph is not None
    assert (await graph.run()).state.outputs == {"a": "good"}
    assert not canary.exists()
    with pytest.raises(UntrustedError):
        world.catalog.definition("main").load()


def test_helpers_are_imported_by_their_usual_names(world: World) -> None:
    world.flow("lib/__init__", "one = 1\n")
    world.flow("lib/inner", "from . import one\nfrom .other import three\ntwo = one + 1\n")
    world.flow("lib/other", "three = 3\n")
    world.flow("_plain", "four = 4\n")
    world.flow("bare/x", "five = 5\n")
    world.tool("_shared", "six = 6\n")
    world.flow(
        "main",
        "import lib\nimport lib.inner\nimport lib.inner as deep\nfrom lib import other, one\n"
        "from lib.inner import two\n"
        "from _plain import four\nfrom bare.x import five\nimport bare.x\nfrom _shared import six\n"
        "from . import _plain\nfrom .lib.other import three\n"
        "got = (lib.inner.two, deep.three, other.three, one, two, four, five, bare.x.five, six, _plain.four, three)\n"
        "assert got == (2, 3, 3, 1, 2, 4, 5, 5, 6, 4, 3), got\n",
    )
    assert world.reasons("main") == []


def test_helpers_of_the_same_name_in_two_projects_stay_separate(tmp_path: Path) -> None:
    for name in ("one", "two"):
        world = World(tmp_path / name)
        world.flow("_helper", f"word = '{name}'\n")
        world.flow("main", f"from _helper import word\nassert word == '{name}', word\n")
        world.flow("_helper", "word = 'user'\n", user=True)
        world.flow("mine", "from _helper import word\nassert word == 'user', word\n", user=True)
        assert world.reasons("main") == []
        assert world.reasons("mine") == []


def test_shadows_of_known_modules_have_no_effect(world: World, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = f"open({str(canary)!r}, 'w')\n"
    for name in ("json", "typing", "sitecustomize", "usercustomize", "msgspec", "atomic", "atomic/workflows/__init__"):
        world.file(f"{name}.py", evil)
        world.flow(name, evil)
    world.flow("main", "import json, typing, msgspec, atomic.workflows\njson.dumps({})\n")
    before = list(sys.path)
    assert world.reasons("main") == []
    assert sys.path == before
    assert not canary.exists()


def test_the_project_folder_is_never_on_the_import_path(world: World) -> None:
    world.file("secret_module_of_the_project.py", "")
    world.flow("main", "import secret_module_of_the_project\n")
    assert "No module named" in world.reasons("main")[0][1]
