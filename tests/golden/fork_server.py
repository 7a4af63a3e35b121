"""Run many `atomic` command lines quickly: load the command once, then fork for each of them.

`python fork_server.py FOLDER < orders.json > results.json`: a list of {"words", "cwd", "input"} becomes a list of
{"exit_code", "stdout", "stderr"}; the streams are files in the folder. Each child calls the entry point that the
installed `atomic` script calls. Standard library only: nothing is loaded that `atomic` does not load.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NoReturn


def main(folder: str) -> int:
    [entry] = entry_points(group="console_scripts", name="atomic")
    atomic = entry.load()
    results: list[dict[str, Any]] = []
    for order in json.load(sys.stdin):
        place = tempfile.mkdtemp(dir=folder)
        child = os.fork()
        if child == 0:
            _run(atomic, order, place)
        _, status = os.waitpid(child, 0)
        results.append({"exit_code": os.waitstatus_to_exitcode(status), **_read(place, "stdout", "stderr")})
        # The next children need not import again what this one has imported.
        for module in _read(place, "modules")["modules"].split():
            import_module(module)
    json.dump(results, sys.stdout)
    return 0


def _run(atomic: Callable[[], int], order: dict[str, Any], folder: str) -> NoReturn:
    """Become the process that a shell would start."""
    with open(os.path.join(folder, "stdin"), "w+") as file:
        file.write(order["input"])
        file.seek(0)
        os.dup2(file.fileno(), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        with open(os.path.join(folder, name), "wb") as file:
            os.dup2(file.fileno(), number)
    os.chdir(order["cwd"])
    sys.argv = ["atomic", *order["words"]]
    code = atomic()
    with open(os.path.join(folder, "modules"), "w") as file:
        file.write("\n".join(name for name in sys.modules if name.startswith("atomic.")))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # tearing Python down would take longer than most commands


def _read(folder: str, *names: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                texts[name] = file.read()
        else:
            texts[name] = ""
    return texts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
