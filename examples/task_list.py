"""Three workers on a task file: each task starts the moment its last blocker is done.

    python examples/task_list.py

A failing task does not stop the others; what waits for it is named at the end, and the run is `blocked`, not done.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

from atomic.tasks import TaskList
from atomic.workflows import NodeContext, RunStatus, State, graph, node, reducers, task_loop_node

BREAKFAST = [
    {"id": 1, "title": "boil water"},
    {"id": 2, "title": "grind coffee"},
    {"id": 3, "title": "brew coffee", "blocked_by": ["1", "2"]},
    {"id": 4, "title": "toast bread", "priority": 1},
    {"id": 5, "title": "serve", "blocked_by": ["3", "4"]},
]


class Kitchen(State):
    tasks_path: str = ""
    served: Annotated[list[str], reducers.concat] = []


async def work(ctx: NodeContext[Kitchen]) -> dict[str, Any]:
    task = ctx.item
    print(f"  begin  {task.title}")
    await asyncio.sleep(0.05)
    if task.metadata.get("burns"):
        raise RuntimeError("the toast is black")
    print(f"  done   {task.title}")
    return {"served": [task.title]}


kitchen = (
    graph(Kitchen)
    .then(task_loop_node("cook", tasks_path=lambda s: s.tasks_path, task_nodes=node("work", work), max_concurrency=3))
    .compile("kitchen")
)


async def main(*, burn: bool = False) -> int:
    tasks = [{**task, "burns": True} if burn and task["id"] == 4 else task for task in BREAKFAST]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.json"
        TaskList.parse(tasks).write(path)
        result = await kitchen.run({"tasks_path": str(path)})
    print(f"{result.status}: {', '.join(result.state.served)}")
    if result.error:
        print(result.error)
    return 0 if result.status is RunStatus.COMPLETED else 5


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
