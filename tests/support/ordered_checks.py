"""A `python3` that decides in which order tasks of the demo are merged.

The merge queue takes the task that is ready first. So the checks of a task wait until
the tasks that must be merged before it are completed. Task 1 must be the last one: its
first attempt fails, and a red check runs again when no other check runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

MODULES = {"1": "life/board.py", "2": "life/patterns.py", "3": "life/picture.py"}  # by task
_MAX_SECONDS = 300.0  # ends a hang only
_PROGRAM = """#!{python}
import glob, json, os, sys, time

there = [task for task, module in {modules!r}.items() if os.path.exists(module)]
first = set()
if len(there) == 1:  # the work of one task, not merged
    first.update({order!r}[: {order!r}.index(there[0])])
end = time.monotonic() + {seconds!r}
while first:
    for name in glob.glob({tasks!r}):
        with open(name, encoding="utf-8") as file:
            tasks = json.load(file)["tasks"]
        first.difference_update(task["id"] for task in tasks if task["status"] == "completed")
    if time.monotonic() > end:
        sys.exit(f"tasks {{first}} are not completed")
    time.sleep(0.05)
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


def write_ordered_python(folder: Path, home: Path, order: Sequence[str]) -> None:
    """Write `python3` into a folder for PATH.

    `home` is the user's home folder; `order` names the tasks of `MODULES`.
    """
    python = shutil.which("python3")
    assert python is not None
    tasks = home / ".atomic" / "sessions" / "*" / "tasks.json"
    text = _PROGRAM.format(python=python, modules=MODULES, order=list(order), seconds=_MAX_SECONDS, tasks=str(tasks))
    program = folder / "python3"
    program.write_text(text, "utf-8")
    program.chmod(0o755)
