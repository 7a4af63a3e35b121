"""Custom tools: the public functions of files, by name, from trusted bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.loading.project_tools import ToolCatalog
from atomic.workflows import RunStatus, State, UntrustedError, WorkflowLoadError, graph
from atomic.workflows.errors import ToolNotFoundError
from tests.loading.projects import World
from tests.runs.small_runtime import Runtime

TOOLS = '''
def count(text: str) -> int:
    """Count the words.

    More about it.
    """
    return len(text.split())

async def late() -> str:
    """Later."""
    return "late"

def undocumented(): ...
def _private():
    """No."""
class Thing:
    """No function."""
    def method(self):
        """No."""
from os import getcwd
'''


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_public_functions_with_a_docstring_are_tools(world: World) -> None:
    world.tool("words", TOOLS)
    world.tool("_helper", 'def hidden():\n    """No."""\n')
    tools = ToolCatalog(world.trust())
    assert [(tool.name, tool.description) for tool in tools.all()] == [
        ("count", "Count the words."),
        ("late", "Later."),
    ]
    assert tools.require("count")("a b c") == 3
    with pytest.raises(ToolNotFoundError, match='Tool not found: "cout" \\(did you mean "count"\\?\\)'):
        tools.require("cout")


def test_the_project_beats_the_user(world: World) -> None:
    world.tool("mine", 'def who():\n    """Who."""\n    return "user"\n', user=True)
    world.tool("more", 'def other():\n    """Other."""\n    return "user"\n', user=True)
    world.tool("theirs", 'def who():\n    """Who."""\n    return "project"\n')
    tools = ToolCatalog(world.trust())
    assert tools.require("who")() == "project"
    assert tools.require("other")() == "user"


def test_a_tool_of_the_project_runs_only_if_it_is_trusted(world: World) -> None:
    file = world.tool("t", 'def who():\n    """Who."""\n    return "old"\n')
    with pytest.raises(UntrustedError):
        ToolCatalog(world.catalog).require("who")
    tools = ToolCatalog(world.trust())
    file.write_text('def who():\n    """Who."""\n    return "swapped"\n')
    assert tools.require("who")() == "old"


def test_the_users_tools_need_no_trust(world: World) -> None:
    world.tool("t", 'def who():\n    """Who."""\n    return "user"\n', user=True)
    world.tool("evil", "raise SystemExit\n")
    assert ToolCatalog(world.catalog).require("who")() == "user"


def test_mistakes_in_tool_files_are_reported_with_their_line(world: World) -> None:
    world.tool("broken", "x = 1\ndef (\n")
    world.tool("twice", 'def a():\n    """One."""\n')
    world.tool("twice_too", '\ndef a():\n    """Two."""\n')
    world.tool("raises", 'def b():\n    """B."""\n1 / 0\n')
    world.tool("gone", 'def c():\n    """C."""\nc = 3\n')
    tools = ToolCatalog(world.trust())
    assert [(one.path.name, one.line) for one in tools.problems] == [("broken.py", 2), ("twice_too.py", 2)]
    for name, file, line in (("b", "raises.py", 3), ("c", "gone.py", 1)):
        with pytest.raises(WorkflowLoadError) as caught:
            tools.require(name)
        assert [(one.path.name, one.line) for one in caught.value.problems] == [(file, line)]


async def test_a_node_calls_a_tool_by_its_name(world: World) -> None:
    world.tool("words", TOOLS)
    runtime = Runtime()
    runtime.tools = ToolCatalog(world.trust())  # pyright: ignore[reportAttributeAccessIssue]  # a plain dictionary there
    compiled = graph(State).custom_tool("n", tool="count", args={"text": "a b"}).custom_tool("l", tool="late").compile()
    result = await compiled.run(deps=runtime)
    assert result.status is RunStatus.COMPLETED
    assert result.state.outputs == {"n": 2, "l": "late"}
