"""A `python3` that decides in which order tasks of the demo are merged.

The merge queue takes the task that is ready first. So the checks of a task wait until
the tasks that must be merged before it are completed. Task 1 must be the last one: its
first attempt fails, and a red check runs again when no other check runs.

A workspace hides the sessions, so `completed_tasks` copies from them what is completed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

MODULES = {"1": "life/board.py", "2": "life/patterns.py", "3": "life/picture.py"}  # by task
_MAX_SECONDS = 300.0  # ends a hang only
_PROGRAM = """#!{python}
import os, sys, time

there = [task for task, module in {modules!r}.items() if os.path.exists(module)]
first = set()
if len(there) == 1:  # the work of one task, not merged
    first.update({order!r}[: {order!r}.index(there[0])])
end = time.monotonic() + {seconds!r}
while first:
    first.difference_update(task for task in list(first) if os.path.exists(os.path.join({completed!r}, task)))
    if time.monotonic() > end:
        sys.exit(f"tasks {{first}} are not completed")
    time.sleep(0.05)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@asynccontextmanager
async def ordered_checks(bin: Path, home: Path, order: Sequence[str]) -> AsyncGenerator[None]:
    """Write `python3` into a folder of PATH, and tell it which tasks are completed.

    `home` is the user's home folder; `order` names the tasks of `MODULES`.
    """
    python = shutil.which("python3")
    assert python is not None
    completed = home / "completed"
    completed.mkdir()
    text = _PROGRAM.format(
        python=python, modules=MODULES, order=list(order), seconds=_MAX_SECONDS, completed=str(completed)
    )
    program = bin / "python3"
    program.write_text(text, "utf-8")
    program.chmod(0o755)
    copying = asyncio.create_task(_copy_completed(home, completed))
    try:
        yield
    finally:
        copying.cancel()


async def _copy_completed(home: Path, completed: Path) -> None:
    """Make a file for each completed task of the user's runs, until it is cancelled."""
    while True:
        for file in home.glob(".atomic/sessions/*/tasks.json"):
            for task in json.loads(file.read_text("utf-8"))["tasks"]:
                if task["status"] == "completed":
                    (completed / task["id"]).touch()
        await asyncio.sleep(0.05)
