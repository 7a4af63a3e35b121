"""How authors write `task_selector`, `until` and `tasks_path` of a task loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from atomic.graph.engine.errors import GraphError
from atomic.workflows import NodeContext, RunStatus, node, task_loop_node
from atomic.workflows import graph as new_graph
from tests.graph.engine.small import S, within


async def work(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"log": [ctx.item.id]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "research").mkdir()
    tasks = [{"id": name, "title": name} for name in "abc"]
    (tmp_path / "research" / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def last(tasks: Any) -> Any:
    return tasks[-1]


def last_with_state(tasks: Any, state: S) -> Any:
    assert isinstance(state, S)
    return tasks[-1]


@pytest.mark.parametrize("selector", [last, last_with_state])
async def test_a_selector_takes_the_tasks_or_the_tasks_and_the_state(folder: Path, selector: Any) -> None:
    loop = cast("Any", task_loop_node)("loop", task_nodes=node("work", work), task_selector=selector)
    result = await within(new_graph(S).then(loop).compile().run())
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["c", "b", "a"])


def none() -> Any: ...


def both(state: Any, tasks: Any) -> bool:
    return True


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"task_selector": none}, "loop: task_selector must take the ready tasks, or the tasks and the state"),
        (
            {"until": both},
            "loop: until takes an item, but the node is not inside a map or task loop: take (state) only",
        ),
    ],
)
def test_functions_with_other_parameters_are_refused(options: dict[str, Any], problem: str) -> None:
    loop = cast("Any", task_loop_node)("loop", task_nodes=node("work", work), **options)
    with pytest.raises(GraphError) as caught:
        new_graph(S).then(loop).compile()
    assert [str(found) for found in caught.value.problems] == [problem]
